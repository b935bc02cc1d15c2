/* test_machine_monitor.c: what a run says about its machine: once a change, and nothing about what has always been so. */
#include "report/machine_monitor.h"
#include "lib/test.h"

#include <string.h>

static an_system_info calm(void)
{
    an_system_info f = {.on_battery = 0, .low_power = 0, .battery_percent = AN_UNKNOWN};
    f.throttled = AN_UNKNOWN;
    f.swap_bytes = (uint64_t)8 << 30;
    f.swap_free_bytes = (uint64_t)7 << 30; /* 1 GiB was in use before the run */
    strcpy(f.thermal, "nominal");
    return f;
}

static an_monitor watch;

/* What a look at `now` says must hold `words`; "" for nothing at all. */
static void look_says(const an_system_info *now, const char *words)
{
    an_text out = {0};
    an_monitor_look(&watch, now, &out);
    const char *said = out.data ? out.data : "";
    if (!*words && *said) fail_msg("said \"%s\"", said);
    if (!strstr(said, words)) fail_msg("\"%s\" lacks \"%s\"", said, words);
    an_text_free(&out);
}

static void begin(const an_system_info *now, const char *words)
{
    an_text out = {0};
    an_monitor_begin(&watch, now, &out);
    const char *said = out.data ? out.data : "";
    if (!*words && *said) fail_msg("said \"%s\"", said);
    if (!strstr(said, words)) fail_msg("\"%s\" lacks \"%s\"", said, words);
    an_text_free(&out);
}

static void a_calm_machine_says_nothing(void **state)
{
    (void)state;
    an_system_info f = calm(), unknown = {.on_battery = AN_UNKNOWN, .low_power = AN_UNKNOWN};
    unknown.memory_stall = unknown.throttled = AN_UNKNOWN;
    begin(&f, "");
    look_says(&f, "");
    begin(&unknown, "");
    look_says(&unknown, "");
}

static void swap_is_told_when_it_has_grown_and_then_when_growth_has_doubled(void **state)
{
    (void)state;
    an_system_info f = calm();
    begin(&f, "");
    f.swap_free_bytes -= (uint64_t)255 << 20;
    look_says(&f, "");
    f.swap_free_bytes -= (uint64_t)1 << 20;
    look_says(&f, "swap has grown by 256 MiB since the run began (1.2 GiB in use)");
    f.swap_free_bytes -= (uint64_t)255 << 20;
    look_says(&f, "");
    f.swap_free_bytes -= (uint64_t)1 << 20;
    look_says(&f, "swap has grown by 512 MiB");
    f.swap_free_bytes = f.swap_bytes;
    look_says(&f, "");
}

static void heat_is_told_at_each_change(void **state)
{
    (void)state;
    an_system_info f = calm();
    begin(&f, "");
    strcpy(f.thermal, "fair");
    look_says(&f, "thermal state fair");
    look_says(&f, "");
    strcpy(f.thermal, "serious");
    look_says(&f, "thermal state serious: the machine is hot");
    strcpy(f.thermal, "nominal");
    look_says(&f, "has cooled");
    strcpy(f.thermal, "limited to 60 %");
    begin(&f, "limited to 60 %"); /* a run that begins hot says so */
}

static void throttling_is_told_when_it_begins_not_each_time_it_is_counted(void **state)
{
    (void)state;
    an_system_info f = calm();
    f.throttled = 12;
    strcpy(f.thermal, "throttled 12 times");
    begin(&f, ""); /* before the run */
    f.throttled = 13;
    look_says(&f, "slowed down for its heat");
    f.throttled = 20;
    look_says(&f, "");
    look_says(&f, "");
    f.throttled = 21;
    look_says(&f, "slowed down for its heat");
}

static void power_and_memory_waits_are_told_as_they_come_and_go(void **state)
{
    (void)state;
    an_system_info f = calm();
    begin(&f, "");
    f.on_battery = 1;
    look_says(&f, "running from the battery");
    look_says(&f, "");
    f.low_power = 1;
    look_says(&f, "low-power mode is on");
    begin(&f, "running from the battery");
    begin(&f, "low-power mode is on");
    f.on_battery = f.low_power = 0;
    look_says(&f, "mains power again");
    f.memory_stall = 30;
    look_says(&f, "waited for memory 30 % of the last 10 s");
    f.memory_stall = 5;
    look_says(&f, "");
    f.memory_stall = 40; /* it was never over */
    look_says(&f, "");
    f.memory_stall = 0;
    look_says(&f, "");
    f.memory_stall = 11;
    look_says(&f, "waited for memory 11 %");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_calm_machine_says_nothing),
        cmocka_unit_test(swap_is_told_when_it_has_grown_and_then_when_growth_has_doubled),
        cmocka_unit_test(heat_is_told_at_each_change),
        cmocka_unit_test(throttling_is_told_when_it_begins_not_each_time_it_is_counted),
        cmocka_unit_test(power_and_memory_waits_are_told_as_they_come_and_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
