/* test_system_info.c: machines read from folders and texts that were copied from real ones, and this machine. */
#include "lib/test.h"

#include "platform/system_info.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char root[256];

static void put(const char *path, const char *text)
{
    char full[600];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *p = full + 1; (p = strchr(p, '/')) != NULL; p++) {
        *p = '\0';
        mkdir(full, 0700);
        *p = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static an_system_info unknown(void)
{
    return (an_system_info){.on_battery = AN_UNKNOWN, .battery_percent = AN_UNKNOWN, .low_power = AN_UNKNOWN};
}

static int empty_root(void **state)
{
    static int n;
    (void)state;
    snprintf(root, sizeof root, "%s/%d", test_folder(), n++);
    return mkdir(root, 0700);
}

static void a_laptop_is_read_from_its_kernels_files(void **state)
{
    (void)state;
    put("/etc/os-release", "ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n");
    put("/proc/meminfo", "MemTotal:       16000000 kB\nMemFree:  100 kB\nMemAvailable:    9000000 kB\n"
                         "SwapTotal:       2000000 kB\nSwapFree:        1500000 kB\n");
    put("/proc/cpuinfo", "processor\t: 0\nmodel name\t: Intel(R) Core(TM) i7\nphysical id\t: 0\ncore id\t\t: 0\n"
                         "flags\t\t: fpu avx avx2 fma f16c bmi2 avx512foo\n\n"
                         "processor\t: 1\nmodel name\t: Intel(R) Core(TM) i7\nphysical id\t: 0\ncore id\t\t: 0\n\n"
                         "processor\t: 2\nphysical id\t: 0\ncore id\t\t: 1\n\nprocessor\t: 3\nphysical id\t: 0\n"
                         "core id\t\t: 1\n");
    for (int i = 0; i < 3; i++) {
        static const char *const facts[3][3] = {
            {"1", "Data", "48K"}, {"1", "Instruction", "32K"}, {"3", "Unified", "24M"}};
        static const char *const names[3] = {"level", "type", "size"};
        for (int k = 0; k < 3; k++) {
            char path[128];
            snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", i, names[k]);
            put(path, facts[i][k]);
        }
    }
    put("/sys/class/power_supply/AC/type", "Mains\n");
    put("/sys/class/power_supply/AC/online", "0\n");
    put("/sys/class/power_supply/BAT0/type", "Battery\n");
    put("/sys/class/power_supply/BAT0/status", "Discharging\n");
    put("/sys/class/power_supply/BAT0/capacity", "83\n");
    put("/sys/firmware/acpi/platform_profile", "low-power\n");
    put("/proc/1/comm", "systemd\n");
    an_system_info f = unknown();
    an_system_info_linux(root, &f);
    assert_string_equal(f.system, "Debian GNU/Linux 12 (bookworm)");
    assert_string_equal(f.cpu, "Intel(R) Core(TM) i7");
    assert_string_equal(f.features, "avx avx2 fma f16c bmi2"); /* avx512foo is not avx512f */
    assert_int_equal(f.cores, 2);
    assert_int_equal(f.threads, 4);
    assert_int_equal(f.l1d_bytes, 48 << 10);
    assert_int_equal(f.l3_bytes, 24 << 20);
    assert_int_equal(f.ram_bytes, 16000000ull << 10);
    assert_int_equal(f.free_bytes, 9000000ull << 10);
    assert_int_equal(f.swap_free_bytes, 1500000ull << 10);
    assert_int_equal(f.on_battery, 1);
    assert_int_equal(f.battery_percent, 83);
    assert_int_equal(f.low_power, 1);
    assert_string_equal(f.container, "");
    assert_string_equal(f.translated, "");
}

static void waits_for_memory_and_throttling_are_numbers_that_move(void **state)
{
    (void)state;
    const char *count = "/sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count";
    an_system_info f = unknown();
    f.cores = 7;
    put("/proc/pressure/memory",
        "some avg10=3.25 avg60=1.00 avg300=0.10 total=5\nfull avg10=1.00 avg60=0 avg300=0 total=1\n");
    put(count, "0\n");
    an_system_info_linux_moving(root, &f);
    assert_true(f.memory_stall == 3.25);
    assert_int_equal(f.throttled, 0);
    assert_string_equal(f.thermal, "nominal");
    put("/sys/fs/cgroup/memory.pressure", "some avg10=40.50 avg60=1.00 avg300=0.10 total=5\n"); /* ours goes first */
    put(count, "31\n");
    an_system_info_linux_moving(root, &f);
    assert_true(f.memory_stall == 40.5);
    assert_int_equal(f.throttled, 31);
    assert_int_equal(f.cores, 7); /* what does not move is left alone */
}

static void a_laptop_on_mains_is_not_on_battery(void **state)
{
    (void)state;
    put("/sys/class/power_supply/AC/type", "Mains\n");
    put("/sys/class/power_supply/AC/online", "1\n");
    put("/sys/class/power_supply/BAT0/type", "Battery\n");
    put("/sys/class/power_supply/BAT0/status", "Charging\n");
    an_system_info f = unknown();
    an_system_info_linux(root, &f);
    assert_int_equal(f.on_battery, 0);
    assert_int_equal(f.low_power, AN_UNKNOWN);
}

static void a_mouses_battery_is_not_the_machines(void **state)
{
    (void)state;
    put("/sys/class/power_supply/hidpp_0/type", "Battery\n");
    put("/sys/class/power_supply/hidpp_0/scope", "Device\n");
    put("/sys/class/power_supply/hidpp_0/status", "Discharging\n");
    an_system_info f = unknown();
    an_system_info_linux(root, &f);
    assert_int_equal(f.on_battery, AN_UNKNOWN);
}

static void containers_and_translation_are_seen(void **state)
{
    (void)state;
    put("/proc/1/comm", "sh\n");
    an_system_info f = unknown();
    an_system_info_linux(root, &f);
    assert_string_equal(f.container, "namespace");
    put("/proc/1/cgroup", "0::/kubepods/burstable/pod1\n");
    f = unknown();
    an_system_info_linux(root, &f);
    assert_string_equal(f.container, "kubernetes");
    put("/.dockerenv", "");
    put("/proc/self/maps", "5555-6666 r-xp 0 00:00 1 /usr/bin/qemu-x86_64-static\n");
    put("/sys/class/dmi/id/sys_vendor", "QEMU\n");
    f = unknown();
    an_system_info_linux(root, &f);
    assert_string_equal(f.container, "docker");
    assert_string_equal(f.translated, "qemu");
    assert_string_equal(f.hypervisor, "kvm");
}

static void an_empty_machine_leaves_everything_unknown(void **state)
{
    (void)state;
    an_system_info f = unknown(), before = f;
    an_system_info_linux(root, &f);
    assert_memory_equal(&f, &before, sizeof f);
}

static const char m2_sysctl[] = "hw.ncpu: 12\nhw.physicalcpu: 12\nhw.physicalcpu_max: 12\nhw.logicalcpu: 12\n"
                                "hw.l1dcachesize: 65536\nhw.l2cachesize: 4194304\nhw.cachelinesize: 128\n"
                                "hw.memsize: 34359738368\nhw.memsize_usable: 33600000000\nhw.nperflevels: 2\n"
                                "hw.perflevel0.physicalcpu: 8\nhw.perflevel0.l1dcachesize: 131072\n"
                                "hw.perflevel0.l2cachesize: 16777216\nhw.perflevel1.physicalcpu: 4\n"
                                "hw.optional.neon: 1\nhw.optional.arm.FEAT_BF16: 1\nhw.optional.arm.FEAT_SME: 0\n"
                                "machdep.cpu.brand_string: Apple M2 Pro\n"
                                "vm.swapusage: total = 2048.00M  used = 1055.50M  free = 992.50M  (encrypted)\n"
                                "kern.hv_vmm_present: 0\nkern.memorystatus_level: 50\n";

static void a_mac_is_read_from_what_its_programs_print(void **state)
{
    (void)state;
    an_system_info f = unknown();
    an_system_info_macos(
        &(an_mac_texts){
            .sysctl = m2_sysctl,
            .translated = "sysctl.proc_translated: 0\n",
            .pmset =
                "System-wide power settings:\nCurrently in use:\n standby              1\n lowpowermode         1\n",
            .pmset_batt = "Now drawing from 'Battery Power'\n -InternalBattery-0 (id=21168227)\t83%; discharging; "
                          "4:02 remaining present: true\n",
            .pmset_therm = "Note: No thermal warning level has been recorded\nNote: No performance warning level\n",
            .sw_vers = "ProductName:\t\tmacOS\nProductVersion:\t\t14.5\nBuildVersion:\t\t23F79\n",
            .xcode_select = "/Library/Developer/CommandLineTools\n"},
        &f);
    assert_string_equal(f.system, "macOS 14.5 (23F79)");
    assert_string_equal(f.cpu, "Apple M2 Pro");
    assert_string_equal(f.features, "neon bf16");
    assert_int_equal(f.cores, 12);
    assert_int_equal(f.cores_fast, 8);
    assert_int_equal(f.cores_slow, 4);
    assert_int_equal(f.l1d_bytes, 131072);
    assert_int_equal(f.l2_bytes, 16777216);
    assert_int_equal(f.line_bytes, 128);
    assert_int_equal(f.ram_bytes, 34359738368ull);
    assert_int_equal(f.free_bytes, 34359738368ull / 100 * 50);
    assert_int_equal(f.swap_free_bytes, (uint64_t)(992.5 * 1048576));
    assert_int_equal(f.on_battery, 1);
    assert_int_equal(f.battery_percent, 83);
    assert_int_equal(f.low_power, 1);
    assert_string_equal(f.thermal, "nominal");
    assert_string_equal(f.translated, "");
    assert_string_equal(f.developer, "/Library/Developer/CommandLineTools");
}

static void rosetta_and_a_hot_intel_mac_are_seen(void **state)
{
    (void)state;
    an_system_info f = unknown();
    an_system_info_macos(
        &(an_mac_texts){.translated = "sysctl.proc_translated: 1\n",
                        .pmset = " lowpowermode         0\n",
                        .pmset_batt = "Now drawing from 'AC Power'\n",
                        .pmset_therm = "2024-01-01 CPU Power notify\n\tCPU_Scheduler_Limit \t= 100\n"
                                       "\tCPU_Speed_Limit \t= 60\n",
                        .xcode_select = "xcode-select: error: unable to get active developer directory\n"},
        &f);
    assert_string_equal(f.translated, "Rosetta 2");
    assert_int_equal(f.low_power, 0);
    assert_int_equal(f.on_battery, 0);
    assert_int_equal(f.battery_percent, AN_UNKNOWN);
    assert_string_equal(f.thermal, "limited to 60 %");
    assert_string_equal(f.developer, "");
}

static void a_mac_that_says_nothing_leaves_everything_unknown(void **state)
{
    (void)state;
    an_system_info f = unknown(), before = f;
    an_system_info_macos(&(an_mac_texts){0}, &f);
    assert_memory_equal(&f, &before, sizeof f);
    an_system_info_macos(&(an_mac_texts){"", "", "", "", "", "", ""}, &f);
    assert_memory_equal(&f, &before, sizeof f);
}

static void the_mount_of_a_path_is_the_deepest_that_holds_it(void **state)
{
    (void)state;
    static const char info[] = "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"
                               "30 22 0:40 / /data ro,relatime shared:1 - nfs4 server:/x rw\n"
                               "31 22 0:41 / /my\\040disk rw - fuse.sshfs a:/b rw\n"
                               "32 22 0:42 / /tmp rw - tmpfs tmpfs rw\n"
                               "33 32 0:43 / /tmp rw - xfs /dev/b rw\n";
    an_mount_info m;
    an_system_info_mount(info, "/home", &m);
    assert_string_equal(m.type, "ext4");
    assert_false(m.network);
    an_system_info_mount(info, "/data/tokens", &m);
    assert_string_equal(m.type, "nfs4");
    assert_string_equal(m.folder, "/data");
    assert_true(m.network && m.read_only);
    an_system_info_mount(info, "/database", &m); /* not below /data */
    assert_string_equal(m.type, "ext4");
    an_system_info_mount(info, "/my disk", &m);
    assert_true(m.network && !m.read_only);
    an_system_info_mount(info, "/tmp/x", &m); /* the later mount covers the earlier one */
    assert_string_equal(m.type, "xfs");
    an_system_info_mount("damaged\n\n - \n", "/x", &m);
    assert_string_equal(m.type, "");
}

static void this_machine_has_cores_and_memory_and_its_facts_are_json(void **state)
{
    (void)state;
    an_system_info f;
    an_system_info_read(&f);
    assert_true(f.cores_usable >= 1 && f.threads >= 1);
    assert_true(f.ram_bytes > 64u << 20);
    assert_true(f.cgroup_bytes == 0 || f.cgroup_bytes >= 1u << 20);
    snprintf(f.cpu, sizeof f.cpu, "a \"quoted\\ name\x01\xff");
    an_text t = {0};
    an_system_info_json(&f, &t);
    assert_false(t.failed);
    json_t *j = json_loads(t.data, 0, NULL);
    assert_non_null(j);
    assert_string_equal(json_string_value(json_object_get(j, "cpu")), "a \"quoted\\ name??");
    assert_int_equal(json_integer_value(json_object_get(j, "usable_cores")), f.cores_usable);
    assert_true(json_is_null(json_object_get(j, "battery_percent")) == (f.battery_percent == AN_UNKNOWN));
    json_decref(j);
    an_text_free(&t);
}

static void the_mount_of_a_file_that_is_not_there_yet_is_its_folders(void **state)
{
    (void)state;
    an_mount_info here, there;
    char path[400];
    an_mount_info_read(root, &here);
    snprintf(path, sizeof path, "%s/not/there/yet.bin", root);
    an_mount_info_read(path, &there);
    if (here.type[0] == '\0') {
        test_skip("no mount is told to hold %s, as in a changed root", root);
    }
    assert_string_equal(here.type, there.type);
    assert_string_equal(here.folder, there.folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_laptop_is_read_from_its_kernels_files, empty_root),
        cmocka_unit_test_setup(waits_for_memory_and_throttling_are_numbers_that_move, empty_root),
        cmocka_unit_test_setup(a_laptop_on_mains_is_not_on_battery, empty_root),
        cmocka_unit_test_setup(a_mouses_battery_is_not_the_machines, empty_root),
        cmocka_unit_test_setup(containers_and_translation_are_seen, empty_root),
        cmocka_unit_test_setup(an_empty_machine_leaves_everything_unknown, empty_root),
        cmocka_unit_test(a_mac_is_read_from_what_its_programs_print),
        cmocka_unit_test(rosetta_and_a_hot_intel_mac_are_seen),
        cmocka_unit_test(a_mac_that_says_nothing_leaves_everything_unknown),
        cmocka_unit_test(the_mount_of_a_path_is_the_deepest_that_holds_it),
        cmocka_unit_test(this_machine_has_cores_and_memory_and_its_facts_are_json),
        cmocka_unit_test_setup(the_mount_of_a_file_that_is_not_there_yet_is_its_folders, empty_root),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
