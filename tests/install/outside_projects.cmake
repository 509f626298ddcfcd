# Run by the install test with cmake -P; see CMakeLists.txt.
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\nended with ${result}:\n${output}")
  endif()
endfunction()

file(REMOVE_RECURSE ${FOLDER})
run(${CMAKE_COMMAND} --install ${KEEL_BUILD} --prefix ${FOLDER}/prefix)
foreach(file include/keel/backend.h include/keel/ext/draft/replay.h include/keel/ext/draft/timestamps.h include/keel/ext/draft/attention_dense.h include/keel/ext/draft/attention_dense_check.hpp
    share/keel/examples/attention/main.cpp share/keel/core/include/keel/ext/draft/README.md include/keel/sdk.hpp include/keel/sdk_policy.hpp include/keel/keel.hpp include/keel/scheduler.hpp share/keel/models/tiny/config.json share/keel/configs
    share/keel/docs/how-to/write-a-policy.md share/keel/core/include/keel/policy.h)
  if(NOT EXISTS ${FOLDER}/prefix/${file})
    message(FATAL_ERROR "not installed: ${file}")
  endif()
endforeach()

# The help text names the installed pages.
execute_process(COMMAND ${FOLDER}/prefix/bin/keel ab --help RESULT_VARIABLE result OUTPUT_VARIABLE output)
file(REAL_PATH ${FOLDER}/prefix/share/keel/docs/reference/experiments.md page)
string(FIND "${output}" "${page}" found)
if(NOT result EQUAL 0 OR found EQUAL -1)
  message(FATAL_ERROR "keel ab --help: expected ${page}, found:\n${output}")
endif()

# The projects are copied first, so that no relative path leads to the source tree.
foreach(project policy policy_cpp backend)
  file(COPY ${KEEL_SOURCE}/tests/install/${project} DESTINATION ${FOLDER})
  run(${CMAKE_COMMAND} -S ${FOLDER}/${project} -B ${FOLDER}/${project}/build -G ${GENERATOR}
    -DCMAKE_PREFIX_PATH=${FOLDER}/prefix -DCMAKE_BUILD_TYPE=Release
    -DCMAKE_C_COMPILER=${C_COMPILER} -DCMAKE_CXX_COMPILER=${CXX_COMPILER} "-DCMAKE_C_FLAGS=-Wall -Wextra -Werror"
    "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror")
  run(${CMAKE_COMMAND} --build ${FOLDER}/${project}/build)
endforeach()

# These are the commands that docs/how-to/write-a-backend.md gives for testing a backend.
run(${CMAKE_CTEST_COMMAND} --test-dir ${FOLDER}/backend/build --no-tests=error -L isa)

# Authors of policies test them with these commands.
run(${CMAKE_CTEST_COMMAND} --test-dir ${FOLDER}/policy_cpp/build --output-on-failure --no-tests=error)

# Builds the example program in its own folder, with only the installation. The program finds the
# plugins next to libkeel.
file(COPY ${KEEL_SOURCE}/examples/hello DESTINATION ${FOLDER})
run(${CMAKE_COMMAND} -S ${FOLDER}/hello -B ${FOLDER}/hello/build -G ${GENERATOR} -DCMAKE_PREFIX_PATH=${FOLDER}/prefix
  -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER=${CXX_COMPILER} "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Wpedantic -Werror")
run(${CMAKE_COMMAND} --build ${FOLDER}/hello/build)
execute_process(COMMAND ${FOLDER}/hello/build/hello ${FOLDER}/prefix/share/keel/models/tiny "The wolf" WORKING_DIRECTORY /
  RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE errors)
if(NOT result EQUAL 0 OR NOT output MATCHES "^The wolf.*[0-9]+ tokens")
  message(FATAL_ERROR "hello ended with ${result}:\n${output}${errors}")
endif()
execute_process(COMMAND ${FOLDER}/hello/build/hello ${FOLDER}/none RESULT_VARIABLE result ERROR_VARIABLE errors)
if(NOT result EQUAL 1 OR NOT errors MATCHES "^hello: .*no such file or folder")
  message(FATAL_ERROR "hello ended with ${result}:\n${errors}")
endif()

# The example of dense attention, which loads a backend plugin itself.
file(COPY ${KEEL_SOURCE}/examples/attention DESTINATION ${FOLDER})
run(${CMAKE_COMMAND} -S ${FOLDER}/attention -B ${FOLDER}/attention/build -G ${GENERATOR} -DCMAKE_PREFIX_PATH=${FOLDER}/prefix
  -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER=${CXX_COMPILER} "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Wpedantic -Werror")
run(${CMAKE_COMMAND} --build ${FOLDER}/attention/build)
file(GLOB cpu_plugin ${FOLDER}/prefix/lib*/keel/plugins/cpu.so ${FOLDER}/prefix/lib/*/keel/plugins/cpu.so)
if(cpu_plugin)
  run(${FOLDER}/attention/build/attention ${cpu_plugin})
endif()
execute_process(COMMAND ${FOLDER}/attention/build/attention ${FOLDER}/backend/build/first_backend.so
  RESULT_VARIABLE result ERROR_VARIABLE errors)
if(NOT result EQUAL 1 OR NOT errors MATCHES "first_backend does not support dense attention with gradients")
  message(FATAL_ERROR "attention with a backend that lacks the extension ended with ${result}:\n${errors}")
endif()

# Finds plugins like a user's program: by their names, in the folders of KEEL_PLUGIN_PATH.
set(ENV{KEEL_PLUGIN_PATH} "${FOLDER}/policy/build:${FOLDER}/policy_cpp/build:${FOLDER}/backend/build")
run(${CHECK})
