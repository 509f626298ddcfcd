# Usage: cmake -DSOURCE=DIR -DOUT=FILE -P BuildCommit.cmake
# Writes the commit of a source tree as a macro to FILE, if the commit has changed. This script runs
# at each build.
set(commit "")
find_program(git git)
if(git)
  execute_process(COMMAND ${git} --no-optional-locks describe --always --dirty --abbrev=12 --exclude=*
    WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT commit MATCHES "^[0-9a-f]+(-dirty)?$")
  set(commit "")
endif()
set(text "#define KEEL_BUILD_COMMIT \"${commit}\"\n")
set(old "")
if(EXISTS ${OUT})
  file(READ ${OUT} old)
endif()
if(NOT old STREQUAL text)
  file(WRITE ${OUT} "${text}")
endif()
