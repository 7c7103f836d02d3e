# Installs the library, its headers, the executable, the specs, and the files by which find_package(memcalc) works.
include(CMakePackageConfigHelpers)

set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/memcalc)

if(CMAKE_VERSION VERSION_GREATER_EQUAL 3.23)
  install(TARGETS memcalc EXPORT memcalcTargets FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
else()
  install(TARGETS memcalc EXPORT memcalcTargets)
  get_property(public_headers TARGET memcalc PROPERTY MEMCALC_PUBLIC_HEADERS)
  foreach(header ${public_headers})
    get_filename_component(folder ${header} DIRECTORY)
    install(FILES ${PROJECT_SOURCE_DIR}/lib/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/${folder})
  endforeach()
endif()
if(TARGET memcalc_cli)
  install(TARGETS memcalc_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(TARGET memcalc_pages)  # what `memcalc completion` prints, where the shells and man look
  set(printed ${PROJECT_BINARY_DIR}/cli/printed)
  install(FILES ${printed}/memcalc DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions OPTIONAL)
  install(FILES ${printed}/_memcalc DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions OPTIONAL)
  install(FILES ${printed}/memcalc.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d OPTIONAL)
  install(FILES ${printed}/memcalc.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 OPTIONAL)
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/specs DESTINATION ${CMAKE_INSTALL_DATADIR}/memcalc)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

install(EXPORT memcalcTargets NAMESPACE memcalc:: DESTINATION ${config_dir})
set(specs_dir ${CMAKE_INSTALL_DATADIR}/memcalc/specs)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/memcalcConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/memcalcConfig.cmake
                              INSTALL_DESTINATION ${config_dir} PATH_VARS specs_dir)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/memcalcConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/memcalcConfig.cmake ${PROJECT_BINARY_DIR}/memcalcConfigVersion.cmake
        DESTINATION ${config_dir})
