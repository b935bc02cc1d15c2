/* gpu_monitor.h: what NVIDIA's management library says of the GPU while a run trains: how busy and hot it is, whether
 * it is slowed down for its heat, and whether other programs compute on it. The library asks the driver: no GPU waits
 * for it.
 *
 * Owns:      which of these are reported, each once; how often the library is asked.
 * Does not:  load the library (platform/gpu_sensors.h), print or write.
 *
 * Invariant: busy and temperature are those of the run's GPU, or NaN: with several in the machine it is not known which
 *            is the run's. */
#ifndef AN_REPORT_GPU_MONITOR_H
#define AN_REPORT_GPU_MONITOR_H

#include "platform/system_info.h"
#include "platform/gpu_sensors.h"

/* Between two looks. The library's share is of its last period, of up to a second: no look before the updates are that
 * old. */
#define AN_GPU_LOOK_SECONDS  0.5
#define AN_GPU_FIRST_SECONDS 1.2

typedef struct an_gpu_monitor {
    an_gpu_watch *watch; /* NULL: no such library */
    double looked;       /* the caller's clock */
    double busy;         /* share, 0 to 1; NaN: unknown */
    double temperature_c;
    bool slowed[AN_GPU_SENSORS_MOST]; /* reported, and not yet over */
} an_gpu_monitor;

/* A sentence for each GPU on which several programs compute. */
void an_gpu_monitor_begin(an_gpu_monitor *m, an_text *out);
void an_gpu_monitor_end(an_gpu_monitor *m);
/* `age`: seconds of updates so far. Asks the library if AN_GPU_LOOK_SECONDS have passed; appends what has changed, one
 * sentence a line. */
void an_gpu_monitor_look(an_gpu_monitor *m, double now, double age, an_text *out);

#endif
