/* gpu_sensors.c: see gpu_sensors.h. The functions and structures are those of NVIDIA's NVML API reference, version 2 of
 * the names where there is one. */
#include "platform/gpu_sensors.h"
#include "platform/dynamic_library.h"
#include "platform/platform.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct nvml_utilization {
    unsigned gpu, memory; /* percent */
} nvml_utilization;
typedef struct nvml_memory {
    unsigned long long total, free, used;
} nvml_memory;
typedef void *nvml_device;
enum { NO_ROOM = 7, NO_FUNCTION = 13 }; /* of nvmlReturn_t */
enum { HEAT_REASONS = 0x20 | 0x40 };    /* of nvmlClocksThrottleReasons: SwThermalSlowdown, HwThermalSlowdown */

struct an_gpu_watch {
    void *lib;
    int (*init)(void);
    int (*shutdown)(void);
    int (*count)(unsigned *);
    int (*handle)(unsigned, nvml_device *);
    int (*name)(nvml_device, char *, unsigned);
    int (*utilization)(nvml_device, nvml_utilization *);
    int (*memory)(nvml_device, nvml_memory *);
    int (*temperature)(nvml_device, int, unsigned *);
    int (*power)(nvml_device, unsigned *);                  /* milliwatts */
    int (*processes)(nvml_device, unsigned *n, void *list); /* NULL: an old library */
    int (*reasons)(nvml_device, unsigned long long *);      /* for which its clock is held down; NULL: the same */
    const char *(*error)(int);
};

static void *open_library(void)
{
    const char *only = getenv("ANNEAL_NVML_PATH");
    char path[1024];
    if (!only) return an_dl_open(NULL, "libnvidia-ml.so.1");
    snprintf(path, sizeof path, "%.1000s/libnvidia-ml.so.1", only);
    return an_dl_open(NULL, path);
}

static bool find_functions(an_gpu_watch *w, char why[AN_SENSOR_WHY_BYTES])
{
    static const an_dl_symbol symbols[] = {{"nvmlInit_v2", offsetof(an_gpu_watch, init)},
                                           {"nvmlShutdown", offsetof(an_gpu_watch, shutdown)},
                                           {"nvmlDeviceGetCount_v2", offsetof(an_gpu_watch, count)},
                                           {"nvmlDeviceGetHandleByIndex_v2", offsetof(an_gpu_watch, handle)},
                                           {"nvmlDeviceGetName", offsetof(an_gpu_watch, name)},
                                           {"nvmlDeviceGetUtilizationRates", offsetof(an_gpu_watch, utilization)},
                                           {"nvmlDeviceGetMemoryInfo", offsetof(an_gpu_watch, memory)},
                                           {"nvmlDeviceGetTemperature", offsetof(an_gpu_watch, temperature)},
                                           {"nvmlDeviceGetPowerUsage", offsetof(an_gpu_watch, power)},
                                           {"nvmlErrorString", offsetof(an_gpu_watch, error)}};
    const char *missing = an_dl_fill(w->lib, symbols, AN_COUNT(symbols), w);
    if (missing) snprintf(why, AN_SENSOR_WHY_BYTES, "libnvidia-ml.so.1 has no %s", missing);
    an_dl_fill(w->lib, &(an_dl_symbol){"nvmlDeviceGetComputeRunningProcesses_v3", offsetof(an_gpu_watch, processes)}, 1,
               w);
    an_dl_fill(w->lib, &(an_dl_symbol){"nvmlDeviceGetCurrentClocksThrottleReasons", offsetof(an_gpu_watch, reasons)}, 1,
               w);
    return !missing;
}

an_gpu_watch *an_gpu_watch_open(char why[AN_SENSOR_WHY_BYTES])
{
    an_gpu_watch *w = calloc(1, sizeof *w);
    why[0] = 0;
    if (!w) {
        snprintf(why, AN_SENSOR_WHY_BYTES, "no memory");
        return NULL;
    }
    w->lib = open_library();
    if (!w->lib) {
        snprintf(why, AN_SENSOR_WHY_BYTES, "libnvidia-ml.so.1 not found: no NVIDIA driver here");
    } else if (find_functions(w, why)) {
        const int code = w->init();
        if (code == 0) return w;
        snprintf(why, AN_SENSOR_WHY_BYTES, "NVML: %.100s", w->error(code));
    }
    if (w->lib) an_dl_close(w->lib);
    free(w);
    return NULL;
}

void an_gpu_watch_close(an_gpu_watch *w)
{
    if (!w) return;
    w->shutdown();
    an_dl_close(w->lib);
    free(w);
}

static void take(const an_gpu_watch *w, int code, double value, an_sensor *out)
{
    memset(out, 0, sizeof *out);
    out->value = code == 0 ? value : (double)NAN;
    if (code) snprintf(out->why, sizeof out->why, "NVML: %.100s", w->error(code));
}

static void read_one(const an_gpu_watch *w, nvml_device d, an_gpu_sensors *out)
{
    nvml_utilization busy = {0};
    nvml_memory memory = {0};
    unsigned degrees = 0, milliwatts = 0;
    if (w->name(d, out->name, sizeof out->name) != 0) snprintf(out->name, sizeof out->name, "GPU");
    out->name[sizeof out->name - 1] = 0;
    int code = w->utilization(d, &busy);
    take(w, code, busy.gpu / 100.0, &out->busy);
    code = w->memory(d, &memory);
    take(w, code, (double)memory.used, &out->used_bytes);
    take(w, code, (double)memory.total, &out->total_bytes);
    code = w->temperature(d, 0, &degrees);
    take(w, code, degrees, &out->temperature);
    code = w->power(d, &milliwatts);
    take(w, code, milliwatts / 1000.0, &out->watts);
    unsigned n = 0; /* without room for a list, only their number is told */
    code = w->processes ? w->processes(d, &n, NULL) : NO_FUNCTION;
    take(w, code == NO_ROOM ? 0 : code, n, &out->processes);
    unsigned long long reasons = 0;
    code = w->reasons ? w->reasons(d, &reasons) : NO_FUNCTION;
    take(w, code, reasons & HEAT_REASONS ? 1 : 0, &out->slowed);
}

int an_gpu_watch_read(const an_gpu_watch *w, an_gpu_sensors out[AN_GPU_SENSORS_MOST])
{
    unsigned n = 0;
    int got = 0;
    if (!w || w->count(&n) != 0) return 0;
    for (unsigned i = 0; i < n && got < AN_GPU_SENSORS_MOST; i++) {
        nvml_device d;
        memset(&out[got], 0, sizeof out[got]);
        if (w->handle(i, &d) == 0) read_one(w, d, &out[got++]);
    }
    return got;
}
