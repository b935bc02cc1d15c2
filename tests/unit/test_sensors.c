/* test_sensors.c: the readings of a machine made of files: busy share, temperature, watts, a process, and why one is missing. */
#define _DEFAULT_SOURCE
#include "lib/test.h"

#include "platform/platform.h"
#include "platform/sensors.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[256];

static void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s/%s", root, path);
    char *slash = strrchr(full, '/');
    *slash = 0;
    assert_int_equal(an_make_dirs(NULL, full, 0700), AN_OK);
    *slash = '/';
    test_write_file(full, text, strlen(text));
}

static void readings_are_those_of_the_files(void **state)
{
    (void)state;
    an_sensor_sample a, b;
    an_sensors s;
    snprintf(root, sizeof root, "%s", test_path("machine"));
    put("proc/stat", "cpu  100 0 50 800 50 0 0 0 0 0\n");
    put("sys/class/hwmon/hwmon0/name", "nvme\n");
    put("sys/class/hwmon/hwmon0/temp1_input", "90000\n"); /* a disk's, not the processor's */
    put("sys/class/hwmon/hwmon3/name", "coretemp\n");
    put("sys/class/hwmon/hwmon3/temp1_input", "41000\n");
    put("sys/class/hwmon/hwmon3/temp2_input", "63500\n");
    put("sys/class/powercap/intel-rapl:0/energy_uj", "5000000\n");
    an_sensors_sample(root, &a);
    put("proc/stat", "cpu  400 0 150 1300 150 0 0 0 0 0\n");
    put("sys/class/powercap/intel-rapl:0/energy_uj", "65000000\n");
    an_sensors_sample(root, &b);
    b.seconds = a.seconds + 2;
    an_sensors_between(&a, &b, &s);
    assert_true(fabs(s.cpu_busy.value - 0.4) < 1e-12); /* 400 of 1000 ticks */
    assert_true(s.temperature.value == 63.5);
    assert_true(fabs(s.watts.value - 30) < 1e-9); /* 60 J in 2 s */
    an_sensors_between(&b, &a, &s);               /* a counter that went back */
    assert_true(isnan(s.watts.value));
    assert_non_null(strstr(s.watts.why, "anew"));
}

static void what_is_missing_says_why(void **state)
{
    (void)state;
    an_sensor_sample a, b;
    an_sensors s;
    snprintf(root, sizeof root, "%s", test_path("bare"));
    put("proc/x", "");
    put("sys/class/hwmon/hwmon0/name", "coretemp\n");
    put("sys/class/hwmon/hwmon0/temp1_input", "no number\n");
    an_sensors_sample(root, &a);
    an_sensors_sample(root, &b);
    an_sensors_between(&a, &b, &s);
    assert_true(isnan(s.cpu_busy.value) && isnan(s.temperature.value) && isnan(s.watts.value));
    assert_non_null(strstr(s.cpu_busy.why, "/proc/stat"));
    assert_non_null(strstr(s.temperature.why, "no sensor"));
    assert_non_null(strstr(s.watts.why, "energy counter"));
}

static void count(void *arg, int pid, const char *folder)
{
    assert_int_equal(pid, 77);
    assert_string_equal(folder, "/data/a b/run");
    ++*(int *)arg;
}

static void a_process_is_found_by_the_lock_that_it_holds(void **state)
{
    (void)state;
    char path[512];
    double cpu_s, rss;
    int n = 0;
    snprintf(root, sizeof root, "%s", test_path("processes"));
    put("proc/77/comm", "anneal\n");
    put("proc/77/stat", "77 (a) ) b) R 1 2 3 4 5 6 7 8 9 10 300 100 0 0 20 0 4 0 1234 99999 256 0\n");
    put("proc/77/fd/x", "");
    snprintf(path, sizeof path, "%s/proc/77/fd/5", root);
    assert_int_equal(symlink("/data/a b/run/.lock", path), 0);
    put("proc/78/comm", "other\n");
    put("proc/79/comm", "anneal\n"); /* without a run */
    assert_true(an_processes_each(root, "anneal", count, &n));
    assert_int_equal(n, 1);
    assert_true(an_process_usage(root, 77, &cpu_s, &rss));
    assert_true(cpu_s == 400.0 / (double)sysconf(_SC_CLK_TCK));
    assert_true(rss == 256.0 * (double)sysconf(_SC_PAGESIZE));
    put("proc/77/stat", "77 (a");
    assert_false(an_process_usage(root, 77, &cpu_s, &rss));
    assert_false(an_process_usage(root, 80, &cpu_s, &rss));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(readings_are_those_of_the_files),
        cmocka_unit_test(what_is_missing_says_why),
        cmocka_unit_test(a_process_is_found_by_the_lock_that_it_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
