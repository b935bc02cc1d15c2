/* gpu_sensors.h: what NVIDIA's management library says of the GPUs without asking them to wait: busy, memory, heat, watts.
 *
 * Owns:      loading libnvidia-ml at run time (the folders in ANNEAL_NVML_PATH, and no others when it is set).
 * Does not:  open a context on a GPU: the library asks the driver. */
#ifndef AN_PLATFORM_GPU_SENSORS_H
#define AN_PLATFORM_GPU_SENSORS_H

#include "platform/sensors.h"

typedef struct an_gpu_sensors {
    char name[96];
    an_sensor busy, used_bytes, total_bytes, temperature, watts; /* busy: share of the last second, 0 to 1 */
    an_sensor processes;                                         /* that compute on it */
    an_sensor slowed; /* 1: its clock is held down for its heat; 0: it is not */
} an_gpu_sensors;
enum { AN_GPU_SENSORS_MOST = 16 };

/* NULL: there is none, and `why` is a sentence. */
typedef struct an_gpu_watch an_gpu_watch;
an_gpu_watch *an_gpu_watch_open(char why[AN_SENSOR_WHY_BYTES]);
void an_gpu_watch_close(an_gpu_watch *w); /* NULL: nothing */
/* How many were read. */
int an_gpu_watch_read(const an_gpu_watch *w, an_gpu_sensors out[AN_GPU_SENSORS_MOST]);

#endif
