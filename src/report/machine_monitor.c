/* machine_monitor.c: see machine_monitor.h. Each condition is reported when it begins, and heat and power when it
 * ends. */
#include "report/machine_monitor.h"
#include <anneal_tools.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Growth of swap that is reported first; after that, each doubling is. */
#define SWAP_BYTES (256.0 * 1048576)
/* Percent of 10 s in which some process waited for memory: reported at the first value, over below the second. */
#define STALL_PERCENT 10.0
#define CALM_PERCENT  1.0

/* ---- reading */

static void ask_macos(an_system_info *io)
{
    static const char *const heat[] = {"nominal", "fair", "serious", "critical"};
    int thermal, low_power;
    if (!an_mac_state(&thermal, &low_power)) return;
    /* pmset reports limits on Intel, and nothing on Apple's own chips. */
    if (thermal >= 0 && thermal < (int)AN_COUNT(heat) && (thermal > 0 || !io->thermal[0]))
        snprintf(io->thermal, sizeof io->thermal, "%s", heat[thermal]);
    if (low_power >= 0) io->low_power = low_power;
}

void an_monitor_facts(an_system_info *out)
{
    an_system_info_read(out);
    ask_macos(out);
}

void an_monitor_update(an_system_info *io)
{
    io->thermal[0] = '\0';
    an_system_info_update(io);
    ask_macos(io);
}

/* ---- judging */

__attribute__((format(printf, 2, 3))) static void say(an_text *out, const char *format, ...)
{
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    an_text_printf(out, "%s%s", out->len ? "\n" : "", text);
}

static uint64_t swap_used(const an_system_info *f)
{
    return f->swap_bytes > f->swap_free_bytes ? f->swap_bytes - f->swap_free_bytes : 0;
}

static void look_at_memory(an_monitor *w, const an_system_info *now, an_text *out)
{
    const uint64_t used = swap_used(now), growth = used > w->swap_begin ? used - w->swap_begin : 0;
    char grown[16], all[16];
    if ((double)growth >= AN_MAX(SWAP_BYTES, 2.0 * (double)w->swap_told)) {
        w->swap_told = growth;
        say(out,
            "swap has grown by %s since the run began (%s in use): memory is short, and steps wait for it; close "
            "other programs or take a smaller batch_size",
            an_bytes_text((double)growth, grown), an_bytes_text((double)used, all));
    }
    if (now->memory_stall >= STALL_PERCENT && !w->stalled) {
        w->stalled = true;
        say(out, "programs here waited for memory %.0f %% of the last 10 s: close some, or take a smaller batch_size",
            now->memory_stall);
    }
    w->stalled &= now->memory_stall >= CALM_PERCENT;
}

static void look_at_heat(an_monitor *w, const an_system_info *now, an_text *out)
{
    const an_system_info *was = &w->was;
    if (now->throttled != AN_UNKNOWN && was->throttled != AN_UNKNOWN) { /* Linux counts */
        const bool more = now->throttled > was->throttled;
        if (more && !w->throttled) say(out, "the processor was slowed down for its heat: steps get slower");
        w->throttled = more;
        return;
    }
    if (!now->thermal[0] || strcmp(now->thermal, was->thermal) == 0) return;
    if (strcmp(now->thermal, "nominal") == 0)
        say(out, "thermal state nominal: the machine has cooled");
    else if (strcmp(now->thermal, "fair") == 0)
        say(out, "thermal state fair: the machine is warm, and may be slowed down soon");
    else
        say(out, "thermal state %s: the machine is hot and slowed down, steps take longer", now->thermal);
}

static void look_at_power(const an_monitor *w, const an_system_info *now, an_text *out)
{
    const an_system_info *was = &w->was;
    if (now->on_battery == 1 && was->on_battery != 1)
        say(out, "running from the battery: steps may be slower, and the run stops when the machine sleeps");
    if (now->on_battery == 0 && was->on_battery == 1) say(out, "on mains power again");
    if (now->low_power == 1 && was->low_power != 1) say(out, "low-power mode is on: steps are slower");
    if (now->low_power == 0 && was->low_power == 1) say(out, "low-power mode is off again");
}

void an_monitor_begin(an_monitor *w, const an_system_info *now, an_text *out)
{
    *w = (an_monitor){.was = *now, .swap_begin = swap_used(now), .looked = w->looked};
    w->was.on_battery = w->was.low_power = 0; /* compared with a cool machine on mains power */
    snprintf(w->was.thermal, sizeof w->was.thermal, "nominal");
    an_monitor_look(w, now, out);
}

void an_monitor_look(an_monitor *w, const an_system_info *now, an_text *out)
{
    look_at_memory(w, now, out);
    look_at_heat(w, now, out);
    look_at_power(w, now, out);
    w->was = *now;
}
