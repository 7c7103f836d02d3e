# memcalc_configure_target(TARGET): the language level, warnings and sanitizers of every target built here.
function(memcalc_configure_target target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wpedantic
    -Wno-missing-field-initializers  # {.name = "total"} leaves the rest at its defaults, and means to
    # False alarms of g++ 12 on std::string and std::sort
    $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread>
    $<$<CXX_COMPILER_ID:Clang>:-Wno-missing-braces>  # of the generated tables, 17,000 times
    $<$<BOOL:${MEMCALC_WERROR}>:-Werror>
    # Over a precompiled header g++ collects its garbage again and again: without it 6 % less compilation of a unit, 10 % of a
    # test, for a fifth more memory.
    $<$<AND:$<BOOL:${MEMCALC_UNITY}>,$<CXX_COMPILER_ID:GNU>>:--param=ggc-min-heapsize=2000000>)
  if(MEMCALC_SANITIZE)
    # Addresses are checked by calls, not inline: a quarter less compilation, the same findings.
    target_compile_options(
      ${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:SHELL:--param asan-instrumentation-with-call-threshold=0>)
    target_compile_options(${target} PRIVATE -fsanitize=${MEMCALC_SANITIZE} -fno-sanitize-recover=all
                                             -fno-omit-frame-pointer
                                             -Wno-maybe-uninitialized)  # GCC: false alarms with sanitizers
    target_link_options(${target} PUBLIC -fsanitize=${MEMCALC_SANITIZE})
  endif()
endfunction()
