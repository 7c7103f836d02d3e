function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

set(prefix ${WORK_DIR}/prefix)
file(REMOVE_RECURSE ${WORK_DIR})
set(options -G Ninja -D CMAKE_CXX_COMPILER=${CXX} -D CMAKE_BUILD_TYPE=Release)

if(WAY STREQUAL find_package)
  run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${prefix} --config ${CONFIG})
  # Whoever links memcalc needs none of its private dependencies.
  list(APPEND options -D CMAKE_PREFIX_PATH=${prefix} -D CMAKE_DISABLE_FIND_PACKAGE_nlohmann_json=ON
       -D CMAKE_DISABLE_FIND_PACKAGE_CLI11=ON -D CMAKE_DISABLE_FIND_PACKAGE_Eigen3=ON)
  if(SANITIZE)
    list(APPEND options -D CMAKE_CXX_FLAGS=-fsanitize=${SANITIZE})
  endif()
else()
  list(APPEND options -D MEMCALC_SOURCE_DIR=${SOURCE_DIR})
endif()

run(${CMAKE_COMMAND} -S ${SOURCE_DIR}/tests/install/${WAY} -B ${WORK_DIR}/build ${options})
run(${CMAKE_COMMAND} --build ${WORK_DIR}/build --target consumer)

if(WAY STREQUAL find_package)
  run(${WORK_DIR}/build/consumer)
  foreach(file share/memcalc/specs/gpus share/memcalc/specs/measured/h100-sxm/memory.json share/memcalc/specs/models include/memcalc/memcalc.h bin/memcalc
          share/man/man1/memcalc.1 share/bash-completion/completions/memcalc share/zsh/site-functions/_memcalc
          share/fish/vendor_completions.d/memcalc.fish)
    if(NOT EXISTS ${prefix}/${file})
      message(FATAL_ERROR "not installed: ${file}")
    endif()
  endforeach()
  # The installed executable finds the installed specs, from any directory.
  run(${CMAKE_COMMAND} -E chdir / ${prefix}/bin/memcalc --model bert-large --bs 4 --fp16)
endif()
