/* In place of a GPU: CUDA's driver and runtime, as far as TVM and this package call them.

   Memory is the host's, and kernels compute nothing. They take time on the clock of a stream: a stream goes on at the
   later of the call and of what was put on it before. A kernel takes 1.5 us, and 0.5 ns a warp; an event 0.7 us; the turn
   from a kernel to one that was launched before its end 0.93 us.
   What is launched is told to the file LAUNCHED, where there is one: the warps of each kernel. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct { int64_t ends_ns, recorded_ns; int records, kernel; } Stream;
typedef struct { int64_t at_ns; int recorded; } Event;
typedef struct { int64_t takes_ns; } Graph;

enum { NOT_READY = 600, REFUSED = 900, MOST_STREAMS = 64, KERNEL_NS = 1500, EVENT_NS = 700, LAUNCH_NS = 2000,
       TURN_NS = 930, EDGES_NS = 930, SPIN_NS = 4030, TIMER_STEP_NS = 32 };
static Stream default_stream, *recording[MOST_STREAMS];
static int recordings;
static int64_t recorded_ns;

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}
static int64_t later(int64_t a, int64_t b) { return a > b ? a : b; }
static Stream *stream_of(void *handle) { return handle ? (Stream *)handle : &default_stream; }
static void wait_until(int64_t ns) {
  for (int64_t left; (left = ns - now_ns()) > 0;)
    if (left > 200000) usleep(left / 1000 - 50);
}
static int64_t put(Stream *s, int64_t takes_ns) {
  s->kernel = 0;
  if (s->records) {
    s->recorded_ns += takes_ns;
    recorded_ns = later(recorded_ns, s->recorded_ns);
    return s->recorded_ns;
  }
  return s->ends_ns = later(s->ends_ns, now_ns()) + takes_ns;
}
static void put_kernel(Stream *s, int64_t takes_ns) {
  put(s, takes_ns + (s->kernel && s->ends_ns > now_ns() ? TURN_NS : 0));
  s->kernel = 1;
}
static void record(Stream *s) {
  if (s->records) return;
  s->records = 1;
  s->recorded_ns = 0;
  recording[recordings++] = s;
}

/* the driver */
int cuInit(int flags) { return 0; }
int cuDriverGetVersion(int *version) {
  const char *told = getenv("CUDA_OF_DRIVER");
  return *version = told ? atoi(told) : 13000, 0;
}
int cuGetExportTable(const void **table, const void *id) { return *table = 0, 1; }
int cuDeviceGetCount(int *count) { return *count = 1, 0; }
int cuDeviceGet(int *device, int number) { return *device = number, 0; }
int cuDeviceGetName(char *name, int size, int device) { return strncpy(name, "GPU that is not there", size), 0; }
int cuDeviceGetUuid_v2(unsigned char *id, int device) { return memset(id, 7, 16), 0; }
int cuDeviceGetPCIBusId(char *address, int size, int device) { return strncpy(address, "0000:00:05.0", size), 0; }
int cuModuleLoadData(void **module, const void *data) { return *module = malloc(1), 0; }
int cuModuleUnload(void *module) { return 0; }
int cuModuleGetFunction(void **function, void *module, const char *name) { return *function = strdup(name), 0; }
int cuModuleGetGlobal_v2(void *address, size_t *size, void *module, const char *name) { return 500; }
int cuFuncSetAttribute(void *function, int attribute, int value) { return 0; }
int cuGetErrorName(int error, const char **name) { return *name = "an error of the stand-in", 0; }
int cuMemsetD32_v2(uint32_t *p, uint32_t value, size_t n) {
  while (n) p[--n] = value;
  return 0;
}
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **arguments, void **extra) {
  int64_t warps = (int64_t)gx * gy * gz * ((bx * by * bz + 31) / 32), until = now_ns() + LAUNCH_NS;
  if (getenv("LAUNCHED")) {
    FILE *file = fopen(getenv("LAUNCHED"), "a");
    fprintf(file, "%" PRId64 "\n", warps);
    fclose(file);
  }
  while (now_ns() < until) {}
  if (!strcmp(function, "spin")) { /* of own_kernels.py: it adds up the time between its first and last instruction */
    put_kernel(stream_of(stream), SPIN_NS + EDGES_NS);
    **(int64_t **)arguments[1] += SPIN_NS;
  } else if (!strcmp(function, "timer_steps")) {
    put_kernel(stream_of(stream), *(int64_t *)arguments[0] * TIMER_STEP_NS);
    **(int64_t **)arguments[1] += *(int64_t *)arguments[0] * TIMER_STEP_NS;
  } else if (!strcmp(function, "read_all")) {
    put_kernel(stream_of(stream), 2000 + *(int64_t *)arguments[1] * 16 / 3000);
  } else {
    put_kernel(stream_of(stream), KERNEL_NS + warps / 2);
  }
  return 0;
}

/* the runtime */
int cudaGetDeviceCount(int *count) { return *count = 1, 0; }
int cudaSetDevice(int device) { return 0; }
int cudaGetDevice(int *device) { return *device = 0, 0; }
int cudaDeviceGetAttribute(int *value, int attribute, int device) {
  static const int known[][2] = {{1, 1024}, {2, 1024}, {3, 1024}, {4, 64}, {8, 49152}, {10, 32}, {12, 65536},
                                 {13, 1980000}, {16, 132}, {38, 52428800}, {75, 9}};
  *value = 0;
  for (unsigned i = 0; i < sizeof known / sizeof *known; i++)
    if (known[i][0] == attribute) *value = known[i][1];
  return 0;
}
int cudaGetDeviceProperties_v2(char *properties, int device) {
  memset(properties, 0, 1032);
  cuDeviceGetName(properties, 256, device);
  *(size_t *)(properties + 288) = (size_t)80 << 30; /* totalGlobalMem */
  return 0;
}
int cudaDeviceGetPCIBusId(char *address, int size, int device) { return cuDeviceGetPCIBusId(address, size, device); }
const char *cudaGetErrorString(int error) { return "an error of the stand-in"; }
int cudaMalloc(void **p, size_t size) {
  if (recordings) return REFUSED; /* as while a graph is recorded */
  return posix_memalign(p, 256, size ? size : 1) || !memset(*p, 0, size) ? 2 : 0;
}
int cudaFree(void *p) { return free(p), 0; }
int cudaMallocHost(void **p, size_t size) { return cudaMalloc(p, size); }
int cudaFreeHost(void *p) { return free(p), 0; }
int cudaMemGetInfo(size_t *left, size_t *all) { return *left = *all = (size_t)80 << 30, 0; }
int cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, void *stream) {
  if (kind != 3 || size < 16 << 20) memmove(to, from, size); /* what pushes others out of the L2 is not made */
  int64_t ends_ns = put(stream_of(stream), 2000 + size / 1500);
  if (kind == 2) wait_until(ends_ns);
  return 0;
}
int cudaMemcpyPeerAsync(void *to, int a, const void *from, int b, size_t size, void *stream) {
  return cudaMemcpyAsync(to, from, size, 3, stream);
}
int cudaMemcpy(void *to, const void *from, size_t size, int kind) {
  wait_until(default_stream.ends_ns);
  return memcpy(to, from, size), 0;
}
int cudaMemsetAsync(void *p, int value, size_t size, void *stream) {
  return memset(p, value, size), put(stream_of(stream), 2000), 0;
}
int cudaStreamCreate(void **stream) { return *stream = calloc(1, sizeof(Stream)), 0; }
int cudaStreamCreateWithFlags(void **stream, unsigned flags) { return cudaStreamCreate(stream); }
int cudaStreamDestroy(void *stream) { return free(stream), 0; }
int cudaStreamSynchronize(void *stream) {
  return stream_of(stream)->records ? REFUSED : (wait_until(stream_of(stream)->ends_ns), 0);
}
int cudaLaunchHostFunc(void *stream, void *function, void *microseconds) { /* it is usleep, see events.py */
  return put(stream_of(stream), (int64_t)microseconds * 1000 + 10000), 0;
}
int cudaEventCreate(void **event) { return *event = calloc(1, sizeof(Event)), 0; }
int cudaEventDestroy(void *event) { return free(event), 0; }
int cudaEventRecord(Event *event, void *stream) {
  event->recorded = stream_of(stream)->records;
  event->at_ns = put(stream_of(stream), event->recorded ? 0 : EVENT_NS);
  return 0;
}
int cudaEventSynchronize(Event *event) { return wait_until(event->at_ns), 0; }
int cudaEventQuery(Event *event) { return now_ns() < event->at_ns ? NOT_READY : 0; }
int cudaEventElapsedTime(float *ms, Event *first, Event *last) {
  return *ms = (last->at_ns - first->at_ns) / 1e6f, 0;
}
int cudaStreamWaitEvent(void *stream, Event *event, unsigned flags) {
  Stream *s = stream_of(stream);
  if (event->recorded && recordings) {
    record(s);
    s->recorded_ns = later(s->recorded_ns, event->at_ns);
  } else {
    s->ends_ns = later(s->ends_ns, event->at_ns);
  }
  return 0;
}
int cudaStreamBeginCapture(void *stream, int mode) { return recorded_ns = 0, record(stream_of(stream)), 0; }
int cudaStreamEndCapture(void *stream, Graph **graph) {
  (*graph = malloc(sizeof(Graph)))->takes_ns = recorded_ns;
  while (recordings) recording[--recordings]->records = 0;
  return 0;
}
int cudaGraphInstantiate(Graph **executable, Graph *graph, unsigned long long flags) {
  *(*executable = malloc(sizeof(Graph))) = *graph;
  return 0;
}
int cudaGraphLaunch(Graph *executable, void *stream) { return put(stream_of(stream), executable->takes_ns), 0; }
int cudaGraphExecDestroy(Graph *executable) { return free(executable), 0; }
int cudaGraphDestroy(Graph *graph) { return free(graph), 0; }
