# WebAssembly: of the packages only headers are taken, which are the same for every machine. They stand in /usr/include
# beside the C library of this machine, which emscripten must not see; so links to them stand in a folder of their own.
set(host_headers ${CMAKE_BINARY_DIR}/host-headers)
file(MAKE_DIRECTORY ${host_headers})
foreach(name nlohmann fmt toml++)
  if(NOT EXISTS /usr/include/${name})
    message(FATAL_ERROR "/usr/include/${name} is missing (scripts/web installs what it needs)")
  endif()
  file(CREATE_LINK /usr/include/${name} ${host_headers}/${name} SYMBOLIC)
endforeach()
file(CREATE_LINK /usr/include/eigen3/Eigen ${host_headers}/Eigen SYMBOLIC)

foreach(target nlohmann_json::nlohmann_json Eigen3::Eigen fmt::fmt)
  add_library(${target} INTERFACE IMPORTED)
  set_target_properties(${target} PROPERTIES INTERFACE_INCLUDE_DIRECTORIES ${host_headers})
endforeach()
set(MEMCALC_TOMLPLUSPLUS_INCLUDE ${host_headers} CACHE PATH "where toml++/toml.h is")
