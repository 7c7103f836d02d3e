// What a core does at this moment, in loops of some 100 us each: see host_core.py.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <x86intrin.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + 1e-9 * t.tv_nsec; }
// Nanoseconds of each of n dependent additions of one cycle: the core's clock, whoever shares the core.
double chain(long n) {
  double t = now();
  uint64_t x = 1, one = 1;
  for (long i = 0; i < n; i += 8) __asm__ volatile("add %1,%0\nadd %1,%0\nadd %1,%0\nadd %1,%0\nadd %1,%0\nadd %1,%0\nadd %1,%0\nadd %1,%0" : "+r"(x) : "r"(one));
  return 1e9 * (now() - t) / n;
}
// Of each of n additions of which four are independent: a core that is shared has half of its width.
double wide(long n) {
  double t = now();
  uint64_t a = 1, b = 2, c = 3, d = 4, one = 1;
  for (long i = 0; i < n; i += 16) __asm__ volatile("add %4,%0\nadd %4,%1\nadd %4,%2\nadd %4,%3\nadd %4,%0\nadd %4,%1\nadd %4,%2\nadd %4,%3\nadd %4,%0\nadd %4,%1\nadd %4,%2\nadd %4,%3\nadd %4,%0\nadd %4,%1\nadd %4,%2\nadd %4,%3" : "+r"(a), "+r"(b), "+r"(c), "+r"(d) : "r"(one));
  return 1e9 * (now() - t) / n;
}
// A ring of lines in random order.
void **ring(long bytes) {
  long n = bytes / 64;
  char *m = aligned_alloc(2 << 20, (bytes + (2 << 20) - 1) / (2 << 20) * (2 << 20));
  memset(m, 0, bytes);
  long *order = malloc(n * sizeof(long));
  uint64_t s = 88172645463325252ull;
  for (long i = 0; i < n; i++) order[i] = i;
  for (long i = n - 1; i > 0; i--) { s ^= s << 13; s ^= s >> 7; s ^= s << 17; long j = s % (i + 1), t = order[i]; order[i] = order[j]; order[j] = t; }
  for (long i = 0; i < n; i++) *(void **)(m + 64 * order[i]) = m + 64 * order[(i + 1) % n];
  free(order);
  return (void **)m;
}
// Nanoseconds of each of n dependent loads; *place goes on.
double chase(void ***place, long n) {
  void **p = *place;
  double t = now();
  for (long i = 0; i < n; i++) p = (void **)*p;
  double got = 1e9 * (now() - t) / n;
  *place = p;
  return got;
}
// For `seconds` only the clock is read: out[0] gaps over 3 us, out[1] their microseconds, out[2] the longest.
void gaps(double seconds, double *out) {
  double begin = now(), last = begin, t;
  out[0] = out[1] = out[2] = 0;
  do {
    t = now();
    double g = 1e6 * (t - last);
    if (g > 3) { out[0]++; out[1] += g; if (g > out[2]) out[2] = g; }
    last = t;
  } while (t - begin < seconds);
}
int where(void) { return sched_getcpu(); }
double tsc_ghz(double seconds) { double t = now(); uint64_t a = __rdtsc(); while (now() - t < seconds) {} return (__rdtsc() - a) / (now() - t) * 1e-9; }
// Launches of an empty kernel in the calling thread's context.
static int (*launch_kernel)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
static int (*synchronize)(void);
static void *function;
int prepare(void) {
  void *lib = dlopen("libcuda.so.1", RTLD_NOW);
  if (!lib) return -1;
  int (*load)(void **, const void *) = dlsym(lib, "cuModuleLoadData");
  int (*get)(void **, void *, const char *) = dlsym(lib, "cuModuleGetFunction");
  launch_kernel = dlsym(lib, "cuLaunchKernel");
  synchronize = dlsym(lib, "cuCtxSynchronize");
  void *module;
  int r = load(&module, ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n");
  return r ? r : get(&function, module, "k");
}
double launches(long n) {
  synchronize();
  double t = now();
  for (long i = 0; i < n; i++) launch_kernel(function, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0);
  double got = 1e9 * (now() - t) / n;
  synchronize();
  return got;
}
// Until the process ends: a neighbour that fills its core.
void fill(void) { uint64_t a = 1, b = 2, c = 3, d = 4, one = 1; for (;;) __asm__ volatile("add %4,%0\nadd %4,%1\nadd %4,%2\nadd %4,%3\nadd %4,%0\nadd %4,%1\nadd %4,%2\nadd %4,%3" : "+r"(a), "+r"(b), "+r"(c), "+r"(d) : "r"(one)); }
