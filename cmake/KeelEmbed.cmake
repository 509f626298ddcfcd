# keel_embed(TARGET HEADER NAME.hpp NAMESPACE NS FILES FILE...) embeds text files in TARGET. It
# makes NAME.hpp in the build folder, and sources of TARGET can include this header. For each file,
# the header has one constexpr std::string_view with the file's bytes. For example, `page_css` has
# the bytes of page.css. A zero byte follows the text, so that data() is a C string.
#
# This file is also the script that makes the header:
#   cmake -DOUT=NAME.hpp -DNAMESPACE=NS "-DFILES=a.js b.css" -P KeelEmbed.cmake
if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  separate_arguments(FILES)
  string(CONCAT text "// Made of source files by KeelEmbed.cmake.\n#pragma once\n\n#include <string_view>\n\n"
    "namespace ${NAMESPACE} {\n")
  foreach(file IN LISTS FILES)
    get_filename_component(name ${file} NAME)
    string(MAKE_C_IDENTIFIER ${name} name)
    file(READ ${file} content)
    if(content MATCHES "\\)keel_embed\"")
      message(FATAL_ERROR "${file}: contains the end mark of the C++ string that holds it")
    endif()
    string(APPEND text "constexpr char ${name}_text[] = R\"keel_embed(${content})keel_embed\";\n"
      "constexpr std::string_view ${name}{${name}_text, sizeof ${name}_text - 1};\n")
  endforeach()
  file(WRITE ${OUT} "${text}} // namespace ${NAMESPACE}\n")
  return()
endif()

set(KEEL_EMBED_SCRIPT ${CMAKE_CURRENT_LIST_FILE})
function(keel_embed target)
  cmake_parse_arguments(ARG "" "HEADER;NAMESPACE" "FILES" ${ARGN})
  list(TRANSFORM ARG_FILES PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  string(REPLACE ";" " " files "${ARG_FILES}")
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/embedded)
  set(header ${folder}/${ARG_HEADER})
  add_custom_command(OUTPUT ${header}
    COMMAND ${CMAKE_COMMAND} -DOUT=${header} -DNAMESPACE=${ARG_NAMESPACE} "-DFILES=${files}"
            -P ${KEEL_EMBED_SCRIPT}
    DEPENDS ${ARG_FILES} ${KEEL_EMBED_SCRIPT}
    COMMENT "Embedding ${ARG_HEADER}" VERBATIM)
  target_sources(${target} PRIVATE ${header})
  target_include_directories(${target} PRIVATE ${folder})
endfunction()
