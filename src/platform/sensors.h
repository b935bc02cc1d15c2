/* sensors.h: what this machine says of itself from moment to moment without root rights: how busy its processors are,
 * temperature, watts, and the time and memory of a process.
 *
 * Owns:      reading /proc and /sys/class of Linux, below a root folder that tests replace. Elsewhere each says why not.
 * Does not:  touch a device: nothing here makes a GPU wait.
 *
 * Invariant: a value that cannot be read is NaN, and its `why` is a sentence. */
#ifndef AN_PLATFORM_SENSORS_H
#define AN_PLATFORM_SENSORS_H

#include "base/base.h"

enum { AN_SENSOR_WHY_BYTES = 160 };
typedef struct an_sensor {
    double value;
    char name[48]; /* which: "coretemp", "RAPL package" */
    char why[AN_SENSOR_WHY_BYTES];
} an_sensor;

/* Counters at one moment. */
typedef struct an_sensor_sample {
    double seconds;     /* monotonic */
    double busy, total; /* of all processors, in ticks; NaN: unknown */
    double joules;      /* of the processor's package; NaN: unknown */
    an_sensor temperature, watts_now, energy;
} an_sensor_sample;
void an_sensors_sample(const char *root, an_sensor_sample *out); /* root: "" */

/* Between two moments. */
typedef struct an_sensors {
    an_sensor cpu_busy;    /* share of all processors, 0 to 1 */
    an_sensor temperature; /* degrees Celsius, the hottest of the processor's */
    an_sensor watts;       /* of the processor's package, or of the whole machine: the name says which */
} an_sensors;
void an_sensors_between(const an_sensor_sample *a, const an_sensor_sample *b, an_sensors *out);

/* What is known of Apple's Neural Engine, a sentence; NULL: this machine has none. */
const char *an_neural_engine(void);

/* Seconds of processor time of a process so far and its resident bytes; false: it is gone, or the system does not tell. */
bool an_process_usage(const char *root, int pid, double *cpu_s, double *rss_bytes);
/* Calls `take` for each process whose program is named `program`, with the folder in which it holds a lock file `.lock`
 * open.
 * False: this system does not list them. */
typedef void an_process_fn(void *arg, int pid, const char *folder);
bool an_processes_each(const char *root, const char *program, an_process_fn *take, void *arg);

#endif
