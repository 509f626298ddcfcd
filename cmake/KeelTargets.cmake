# How Keel's own libraries, programs and tests are declared: one place for warnings, sanitizers and labels.
include(KeelEmbed)
include(KeelPlugin)
add_custom_target(keel_plugins) # all plugins that the tree ships

add_library(keel_flags INTERFACE)
target_compile_options(keel_flags INTERFACE -Wall -Wextra -Wshadow -Wpointer-arith -Wno-missing-field-initializers -fno-math-errno -ffp-contract=off)
if(CMAKE_UNITY_BUILD)
  # The presets let CMake compile up to 12 files of a target as one. That is faster because their
  # includes are read once. So a name in an anonymous namespace may stand only once in a target. The
  # preset dev compiles each file alone and finds a missing include.
  # Two warnings of GCC are wrong here: about types in anonymous namespaces, because their file is
  # included by another; and, in GCC 12, about copies within a std::string that overlap.
  target_compile_options(keel_flags INTERFACE
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage;-Wno-restrict>)
endif()
if(KEEL_WERROR)
  target_compile_options(keel_flags INTERFACE -Werror)
endif()
if(KEEL_SANITIZE)
  # frame pointers: readable reports; no-recover: a finding fails the test that met it
  add_compile_options(-fsanitize=${KEEL_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${KEEL_SANITIZE})
endif()

# keel_quick_to_build(NAME [COLD]): where little time is spent when it runs, a sanitizer's checks are compiled without optimization, which
# halves the time of the build. COLD: none is, so that builds for speed do not optimize it as the rest, either (a third of its time).
function(keel_quick_to_build name)
  if(KEEL_SANITIZE)
    target_compile_options(${name} PRIVATE -O0)
  elseif("COLD" IN_LIST ARGN)
    target_compile_options(${name} PRIVATE $<$<CONFIG:Release,RelWithDebInfo>:-O1>)
  endif()
endfunction()

# keel_oracle(NAME): what computes slowly and plainly for tests to hold others against. A sanitizer's build optimizes it: there it is most of the
# time of a run.
function(keel_oracle name)
  if(KEEL_SANITIZE)
    target_compile_options(${name} PRIVATE -O2)
  endif()
endfunction()

# keel_layer(NAME SOURCES ... LINK ...): one layer of the core or room of eval. Includes name the layer ("model/safetensors.hpp",
# "eval/stats/spread.hpp"). Each layer has an include root of its own, which holds nothing but a link to its folder. So a file sees only the
# layers that its target links, and an arrow that points the wrong way does not build.
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
  if(KEEL_FUZZ) # layers and fuzz targets report their coverage; only the targets link the fuzzer itself
    target_compile_options(${name} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
endfunction()

# keel_test_flags(NAME): how a test program is compiled.
function(keel_test_flags name)
  target_link_libraries(${name} PRIVATE keel_flags Catch2::Catch2WithMain)
  keel_quick_to_build(${name})
  if(NOT KEEL_SANITIZE)
    target_compile_options(${name} PRIVATE -O0) # compiles in about two thirds of the time of -O1
  endif()
  if(KEEL_SANITIZE MATCHES undefined)
    # what the tests check is compiled with all checks; the expressions of the tests themselves are half of the code otherwise
    target_compile_options(${name} PRIVATE -fno-sanitize=undefined)
  endif()
endfunction()

# keel_test_entries(NAME LIST TIMEOUT LABELS CASES...): a ctest entry for each case of a program that Catch's words CASES choose. LIST: a
# name that no other list of entries has.
function(keel_test_entries name list timeout labels)
  # A case that is not found fails: Catch would call it passed.
  catch_discover_tests(${name} TEST_PREFIX "${name}: " TEST_SPEC ${ARGN} TEST_LIST ${list} EXTRA_ARGS --warn NoTests
    PROPERTIES TIMEOUT ${timeout})
  # Labels by a script of our own, which ctest reads after the one with the cases: Catch's takes a list of labels apart.
  set(file ${CMAKE_CURRENT_BINARY_DIR}/${list}_labels.cmake)
  set(more "")
  if(timeout GREATER 300)
    set(more " COST ${timeout}") # begun first, so that no core waits for it in the end
  endif()
  file(WRITE ${file}
    "foreach(test IN LISTS ${list})\n"
    "  set_tests_properties(\"\${test}\" PROPERTIES LABELS \"${labels}\"\n"
    "    SKIP_REGULAR_EXPRESSION \"SKIPPED: \"${more})\n"
    "endforeach()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${file})
endfunction()

# keel_test(NAME LABELS fast [ONE_ENTRY] [TIMEOUT S] [GRID_TIMEOUT S] SOURCES ... LINK ...): a Catch2 program whose cases become ctest entries.
# ONE_ENTRY: one ctest entry runs all cases, because a process for each takes longer than the cases. Catch names those that fail. Such a
# program cannot skip a case: it does not link skip().
# GRID_TIMEOUT: cases tagged [grid] have this limit and the label slow.
# A case that calls skip() of tests/support/skip.hpp is reported as skipped.
# KEEL_SOURCE_DIR and KEEL_BINARY_DIR reach the code as macros; models and configs are found through them.
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
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL TRUE) # no sanitizer runs it
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
