# Run this script with cmake -P. It compiles each SDK header alone with all warnings as errors, and
# checks the first member of each struct.
file(GLOB_RECURSE headers ${INCLUDE}/keel/*.h)
if(NOT headers)
  message(FATAL_ERROR "no headers in ${INCLUDE}/keel")
endif()
set(count 0)

# compile(COMPILER LANGUAGE STANDARD HEADER FLAGS...)
function(compile compiler language standard header)
  execute_process(COMMAND ${compiler} -x ${language} -std=${standard} -I ${INCLUDE} -fsyntax-only -Wall -Wextra -Wpedantic
      -Werror ${ARGN} -include ${header} /dev/null
    RESULT_VARIABLE result ERROR_VARIABLE errors)
  if(NOT result EQUAL 0)
    message(SEND_ERROR "${header} does not compile alone as ${standard} with ${compiler}:\n${errors}")
  endif()
endfunction()

foreach(header ${headers})
  foreach(compiler ${C_COMPILERS})
    foreach(standard c11 c17)
      compile(${compiler} c ${standard} ${header} -Wpadded)
      math(EXPR count "${count} + 1")
    endforeach()
  endforeach()
  foreach(compiler ${CXX_COMPILERS})
    foreach(standard c++11 c++14 c++17 c++20)
      compile(${compiler} c++ ${standard} ${header} -Wpadded)
      math(EXPR count "${count} + 1")
    endforeach()
  endforeach()

  # Every struct with members begins with the header member, either directly or through
  # KEEL_ARGS_HEAD.
  file(READ ${header} text)
  string(REGEX MATCHALL "struct keel_[a-z0-9_]+ {[^;]*;?" structs "${text}")
  foreach(struct ${structs})
    if(struct MATCHES "^struct keel_header ")
      continue()
    endif()
    if(NOT struct MATCHES "{[ \n]*(keel_header h|KEEL_ARGS_HEAD)$")
      message(SEND_ERROR "${header}: a public struct must begin with `keel_header h;`: ${struct}")
    endif()
  endforeach()

  # Only fixed-width types are allowed. The types below differ between compilers, or cause padding.
  string(REGEX REPLACE "/\\*([^*]|\\*+[^*/])*\\*+/" "" code "${text}")
  if(code MATCHES "[^a-z_](bool|size_t|long|unsigned|short|wchar_t) +[a-z_]+ *[;,)]")
    message(SEND_ERROR "${header}: types at the border have fixed widths, found '${CMAKE_MATCH_0}'")
  endif()
endforeach()

foreach(compiler ${CXX_COMPILERS})
  foreach(standard c++17 c++20)
    foreach(header sdk.hpp ext/draft/attention_dense_check.hpp)
      compile(${compiler} c++ ${standard} ${INCLUDE}/keel/${header} -Wshadow)
      math(EXPR count "${count} + 1")
    endforeach()
  endforeach()
endforeach()
message(STATUS "${count} compilations")
