# Precompiled headers: what a file of this tree spends half of its compilation on. Only headers of libraries are in them, and each file still
# includes what it uses: the preset `dev` builds without them and finds what is missing.
#
# A launcher such as ccache cannot tell what is in a precompiled header without settings of its own, so with one the default is OFF.
if(CMAKE_CXX_COMPILER_LAUNCHER)
  set(keel_precompile_default OFF)
else()
  set(keel_precompile_default ON)
endif()
option(KEEL_PRECOMPILED_HEADERS "Precompile the standard library's headers and those of other libraries" ${keel_precompile_default})

# keel_precompile(TARGET HEADER...): for a target of many files.
function(keel_precompile target)
  if(KEEL_PRECOMPILED_HEADERS)
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
endfunction()

set(keel_std_headers <algorithm> <array> <atomic> <chrono> <cmath> <cstdint> <cstring> <deque> <filesystem> <fstream> <functional> <limits>
  <map> <memory> <mutex> <optional> <set> <span> <sstream> <string> <string_view> <unordered_map> <utility> <variant> <vector>)
