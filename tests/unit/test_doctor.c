/* test_doctor.c: what doctor makes of facts: which are faults, which only hints. */
#include "lib/test.h"

#include "tools/doctor.h"

#include <stdio.h>
#include <string.h>

/* A machine with nothing wrong. */
static an_doctor healthy(void)
{
    an_doctor d = {.n_devices = 2};
    d.os = (an_system_info){.on_battery = 0, .low_power = 0, .battery_percent = AN_UNKNOWN, .limit_files = 1024};
    snprintf(d.cc.path, sizeof d.cc.path, "/usr/bin/cc");
    snprintf(d.cc.version, sizeof d.cc.version, "cc 12");
    snprintf(d.cc.cache_dir, sizeof d.cc.cache_dir, "/var/cache/anneal");
    d.device[0] = (an_device_facts){.name = "cpu", .built = true, .available = true, .runs = true};
    d.device[1] = (an_device_facts){.name = "cuda", .built = true, .runs = true, .reason = "no driver"};
    return d;
}

static const an_doctor_finding *finding(const an_doctor *d, const char *words)
{
    for (int i = 0; i < d->n_findings; i++)
        if (strstr(d->finding[i].text, words)) return &d->finding[i];
    return NULL;
}

static void a_healthy_machine_has_no_findings(void **state)
{
    (void)state;
    an_doctor d = healthy();
    an_doctor_judge(&d);
    assert_int_equal(d.n_findings, 0);
    assert_false(an_doctor_faulty(&d));
}

static void what_makes_figures_low_is_a_hint(void **state)
{
    (void)state;
    an_doctor d = healthy();
    d.os.on_battery = d.os.low_power = 1;
    snprintf(d.os.translated, sizeof d.os.translated, "Rosetta 2");
    snprintf(d.os.thermal, sizeof d.os.thermal, "limited to 60 %%");
    d.os.ram_bytes = 8ull << 30;
    d.os.cgroup_bytes = 1ull << 30;
    d.cache_mount = (an_mount_info){.type = "nfs4", .network = true};
    an_doctor_judge(&d);
    assert_int_equal(d.n_findings, 6);
    assert_false(an_doctor_faulty(&d));
    assert_non_null(finding(&d, "battery"));
    assert_non_null(finding(&d, "Rosetta 2"));
    assert_non_null(finding(&d, "1 GiB of the machine's 8 GiB"));
    assert_non_null(finding(&d, "nfs4"));
}

static void what_keeps_it_from_running_is_a_fault(void **state)
{
    (void)state;
    an_doctor d = healthy();
    d.cc.path[0] = '\0';
    snprintf(d.cc.why, sizeof d.cc.why, "no C compiler");
    an_doctor_judge(&d);
    assert_true(finding(&d, "no C compiler")->fault);
    d = healthy();
    d.cc.cache_dir[0] = '\0';
    snprintf(d.cc.why_cache, sizeof d.cc.why_cache, "the kernel cache is open to others");
    an_doctor_judge(&d);
    assert_true(finding(&d, "open to others")->fault);
    d = healthy();
    snprintf(d.os.system, sizeof d.os.system, "macOS 14.5 (23F79)");
    an_doctor_judge(&d);
    assert_true(finding(&d, "xcode-select --install")->fault);
    d = healthy();
    d.os.limit_address_bytes = 100 << 20;
    an_doctor_judge(&d);
    assert_true(finding(&d, "ulimit -v is 100 MiB")->fault);
    d = healthy();
    snprintf(d.measured[0].fault, sizeof d.measured[0].fault, "out of memory");
    an_doctor_judge(&d);
    assert_true(finding(&d, "cpu does not run: out of memory")->fault);
    assert_true(finding(&d, "no device runs")->fault);
    assert_true(an_doctor_faulty(&d));
}

static void a_device_that_is_not_there_is_no_fault_until_it_is_asked_for(void **state)
{
    (void)state;
    an_err err = {0};
    an_doctor d;
    const an_doctor_options unknown = {.device = "cpuu", .measure = false};
    assert_int_equal(an_doctor_examine(&err, &unknown, &d), AN_E_USAGE);
    assert_non_null(strstr(err.text, "cpuu"));
    an_err_clear(&err);
    assert_int_equal(an_doctor_examine(&err, &(an_doctor_options){.measure = false}, &d), AN_OK);
    bool oracle = false;
    for (int i = 0; i < d.n_devices; i++) {
        assert_true(d.device[i].name[0] != '\0' && d.device[i].reason[0] != '\0');
        oracle |= strcmp(d.device[i].name, "ref") == 0 && d.device[i].built && !d.device[i].runs;
        if (d.device[i].runs && !d.device[i].available) assert_null(finding(&d, d.device[i].name));
    }
    assert_true(oracle);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_healthy_machine_has_no_findings),
        cmocka_unit_test(what_makes_figures_low_is_a_hint),
        cmocka_unit_test(what_keeps_it_from_running_is_a_fault),
        cmocka_unit_test(a_device_that_is_not_there_is_no_fault_until_it_is_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
