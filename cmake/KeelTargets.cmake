# Functions that declare Keel's own libraries, programs and tests. They also set warnings,
# sanitizers and test labels.
include(KeelEmbed)
include(KeelPlugin)
add_custom_target(keel_plugins) # builds all plugins that Keel ships

add_library(keel_flags INTERFACE)
target_compile_options(keel_flags INTERFACE -Wall -Wextra -Wshadow -Wpointer-arith -Wno-missing-field-initializers -fno-math-errno -ffp-contract=off)
if(CMAKE_UNITY_BUILD)
  # The presets let CMake compile up to 12 files of a target as one file. This is faster, because
  # shared includes are read once. So a name in an anonymous namespace must be unique within a
  # target. The preset dev compiles each file alone and finds missing includes. Two GCC warnings are
  # wrong in these combined files. One is about types in anonymous namespaces, because another file
  # includes their file. The other one, only in GCC 12, is about overlapping copies within a
  # std::string.
  target_compile_options(keel_flags INTERFACE
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage;-Wno-restrict>)
endif()
if(KEEL_WERROR)
  target_compile_options(keel_flags INTERFACE -Werror)
endif()
if(KEEL_SANITIZE)
  # Frame pointers make the sanitizers' reports readable. With no-recover, a test fails if a
  # sanitizer finds an error.
  add_compile_options(-fsanitize=${KEEL_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${KEEL_SANITIZE})
endif()

# keel_quick_to_build(NAME [COLD]): for targets whose speed does not matter. Sanitizer builds do not
# optimize the target, which halves the build time. With COLD, release builds optimize the target
# less than other targets, which saves a third of its build time.
function(keel_quick_to_build name)
  if(KEEL_SANITIZE)
    target_compile_options(${name} PRIVATE -O0)
  elseif("COLD" IN_LIST ARGN)
    target_compile_options(${name} PRIVATE $<$<CONFIG:Release,RelWithDebInfo>:-O1>)
  endif()
endfunction()

# keel_oracle(NAME): for a slow and plain implementation that serves as the reference of tests.
# Sanitizer builds optimize it, because it takes most of the time of a test run.
function(keel_oracle name)
  if(KEEL_SANITIZE)
    target_compile_options(${name} PRIVATE -O2)
  endif()
endfunction()

# keel_layer(NAME SOURCES ... LINK ...) declares a library: one layer of the core, or one folder of
# eval. Paths in #include begin with the name of the layer ("model/safetensors.hpp",
# "eval/stats/spread.hpp"). Each layer has its own include root, which contains only a link to its
# folder. So a file can include only the layers that its target links to, and a dependency in the
# wrong direction does not compile.
function(keel_layer name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK;PRIVATE_LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  set(root ${PROJECT_BINARY_DIR}/include_roots/${name})
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE folder)
  string(REGEX REPLACE "^core/" "" folder ${folder})
  get_filename_component(parent ${root}/${folder} DIRECTORY)
  file(MAKE_DIRECTORY ${parent})
  file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR} ${root}/${folder} SYMBOLIC)
  target_include_directories(${name} PUBLIC ${root})
  target_link_libraries(${name} PUBLIC keel_sdk ${ARG_LINK} PRIVATE keel_flags ${ARG_PRIVATE_LINK})
  # Layers and fuzz targets are compiled to report their coverage. Only the fuzz targets link the
  # fuzzer itself.
  if(KEEL_FUZZ)
    target_compile_options(${name} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
endfunction()

# keel_test_flags(NAME) sets the compiler flags of a test program.
function(keel_test_flags name)
  target_link_libraries(${name} PRIVATE keel_flags Catch2::Catch2WithMain)
  keel_quick_to_build(${name})
  if(NOT KEEL_SANITIZE)
    target_compile_options(${name} PRIVATE -O0) # takes about two thirds of the compile time of -O1
  endif()
  if(KEEL_SANITIZE MATCHES undefined)
    # The tested code is compiled with all sanitizer checks. In the tests themselves, the checks of
    # expressions would be half of the code.
    target_compile_options(${name} PRIVATE -fno-sanitize=undefined)
  endif()
endfunction()

# keel_test_entries(NAME LIST TIMEOUT LABELS CASES...) adds a ctest test for each test case of a
# Catch2 program that CASES selects (a Catch2 test spec). LIST is a name that is unique among all
# calls.
function(keel_test_entries name list timeout labels)
  # If Catch2 does not find a case, the ctest test must fail. By default, Catch2 would report
  # success.
  catch_discover_tests(${name} TEST_PREFIX "${name}: " TEST_SPEC ${ARGN} TEST_LIST ${list} EXTRA_ARGS --warn NoTests
    PROPERTIES TIMEOUT ${timeout})
  # A script of Keel sets the labels. ctest reads it after Catch2's script, which lists the cases.
  # Catch2's script would split a list of labels.
  set(file ${CMAKE_CURRENT_BINARY_DIR}/${list}_labels.cmake)
  set(more "")
  if(timeout GREATER 300)
    # ctest starts tests with a high COST first, so that they do not run alone at the end
    set(more " COST ${timeout}")
  endif()
  file(WRITE ${file}
    "foreach(test IN LISTS ${list})\n"
    "  set_tests_properties(\"\${test}\" PROPERTIES LABELS \"${labels}\"\n"
    "    SKIP_REGULAR_EXPRESSION \"SKIPPED: \"${more})\n"
    "endforeach()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${file})
endfunction()

# keel_test(NAME LABELS fast [ONE_ENTRY] [TIMEOUT S] [GRID_TIMEOUT S] SOURCES ... LINK ...) declares
# a Catch2 program. Each of its test cases becomes a ctest test. With ONE_ENTRY, one ctest test runs
# all cases, because starting a process takes longer than a case; the output of Catch2 names the
# cases that fail. A program with ONE_ENTRY cannot skip a case, because it does not link skip().
# With GRID_TIMEOUT, test cases tagged [grid] have this time limit and the label slow. If a case
# calls skip() of tests/support/skip.hpp, it is reported as skipped. The code gets the macros
# KEEL_SOURCE_DIR and KEEL_BINARY_DIR, with which it finds models and configs.
function(keel_test name)
  cmake_parse_arguments(ARG "ONE_ENTRY" "TIMEOUT;GRID_TIMEOUT" "SOURCES;LINK;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR}/sdk)
  target_compile_definitions(${name} PRIVATE KEEL_SOURCE_DIR="${PROJECT_SOURCE_DIR}" KEEL_BINARY_DIR="${PROJECT_BINARY_DIR}")
  target_link_libraries(${name} PRIVATE ${ARG_LINK})
  if(NOT ARG_ONE_ENTRY)
    target_link_libraries(${name} PRIVATE keel_test_support)
  endif()
  keel_test_flags(${name})
  if(KEEL_SANITIZE AND ARG_LABELS STREQUAL "slow")
    # no sanitizer run includes slow tests
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL TRUE)
  endif()
  if(ARG_ONE_ENTRY)
    add_test(NAME "${name}:all cases" COMMAND ${name})
    set_tests_properties("${name}:all cases" PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
  elseif(ARG_GRID_TIMEOUT)
    keel_test_entries(${name} ${name}_TESTS ${ARG_TIMEOUT} "${ARG_LABELS}" "~[grid]")
    keel_test_entries(${name} ${name}_GRID_TESTS ${ARG_GRID_TIMEOUT} slow "[grid]")
  else()
    keel_test_entries(${name} ${name}_TESTS ${ARG_TIMEOUT} "${ARG_LABELS}")
  endif()
endfunction()
