/* gpu_monitor.c: see gpu_monitor.h. */
#include "report/gpu_monitor.h"
#include <math.h>
#include <string.h>

static int read_gpus(const an_gpu_monitor *m, an_gpu_sensors gpu[AN_GPU_SENSORS_MOST])
{
    const int n = an_gpu_watch_read(m->watch, gpu);
    for (int i = 0; i < n; i++) an_text_printable(gpu[i].name, strlen(gpu[i].name));
    return n;
}

void an_gpu_monitor_begin(an_gpu_monitor *m, an_text *out)
{
    char why[AN_SENSOR_WHY_BYTES];
    an_gpu_sensors gpu[AN_GPU_SENSORS_MOST];
    *m = (an_gpu_monitor){.watch = an_gpu_watch_open(why), .looked = -INFINITY, .busy = NAN, .temperature_c = NAN};
    const int n = read_gpus(m, gpu);
    for (int i = 0; i < n; i++)
        if (gpu[i].processes.value > 1)
            an_text_printf(out, "%s%.0f programs compute on the GPU %d (%s): each gets a part of its time",
                           out->len ? "\n" : "", gpu[i].processes.value, i, gpu[i].name);
}

void an_gpu_monitor_end(an_gpu_monitor *m)
{
    an_gpu_watch_close(m->watch);
    m->watch = NULL;
}

void an_gpu_monitor_look(an_gpu_monitor *m, double now, double age, an_text *out)
{
    an_gpu_sensors gpu[AN_GPU_SENSORS_MOST];
    if (!m->watch || !(age > AN_GPU_FIRST_SECONDS) || !(now - m->looked > AN_GPU_LOOK_SECONDS)) return;
    m->looked = now;
    const int n = read_gpus(m, gpu);
    m->busy = n == 1 ? gpu[0].busy.value : (double)NAN;
    m->temperature_c = n == 1 ? gpu[0].temperature.value : (double)NAN;
    for (int i = 0; i < n; i++) {
        const bool slowed = gpu[i].slowed.value > 0;
        if (slowed && !m->slowed[i])
            an_text_printf(out, "%sthe GPU %d (%s) was slowed down for its heat: steps get slower",
                           out->len ? "\n" : "", i, gpu[i].name);
        m->slowed[i] = slowed;
    }
}
