# One CTest test for each scenario of a program and each environment, found from the program's own
# registry after each build.
#
# leaklab_scenario_tests(TARGET [ENVIRONMENT...])
function(leaklab_scenario_tests target)
  set(tests ${target}_scenarios.cmake)
  set(arguments "")
  foreach(environment IN LISTS ARGN)
    list(APPEND arguments --env ${environment})
  endforeach()
  # CTest reads these paths relative to the build folder, which can then be carried to a machine
  # with a GPU and tested there.
  add_custom_command(
    TARGET ${target} POST_BUILD
    COMMAND ${target} ctest-file ${tests} --program bin/${target} ${arguments}
    WORKING_DIRECTORY "${CMAKE_BINARY_DIR}"
    BYPRODUCTS "${CMAKE_BINARY_DIR}/${tests}"
    VERBATIM)
  # CTest would stop at a file that isn't there yet.
  file(WRITE "${CMAKE_BINARY_DIR}/${target}_tests.cmake" "include(${tests} OPTIONAL)\n")
  set_property(DIRECTORY "${CMAKE_SOURCE_DIR}" APPEND PROPERTY TEST_INCLUDE_FILES
                                                               ${target}_tests.cmake)
endfunction()
