/* test_network.c: the links of a machine made of files: cards that are up, InfiniBand ports that are active, a PCI device. */
#define _DEFAULT_SOURCE
#include "lib/test.h"

#include "platform/network.h"
#include "platform/platform.h"
#include <stdio.h>
#include <string.h>

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

static void links_are_those_that_are_up_and_have_a_device(void **state)
{
    char text[300];
    (void)state;
    snprintf(root, sizeof root, "%s", test_path("machine"));
    an_network_links(root, text, sizeof text);
    assert_string_equal(text, "");
    put("sys/class/net/eth0/device/vendor", "0x15b3\n");
    put("sys/class/net/eth0/operstate", "up\n");
    put("sys/class/net/eth0/speed", "25000\n");
    put("sys/class/net/eth1/device/vendor", "0x15b3\n"); /* no cable */
    put("sys/class/net/eth1/operstate", "down\n");
    put("sys/class/net/eth1/speed", "-1\n");
    put("sys/class/net/ens3/device/vendor", "0x1af4\n"); /* a virtual machine's */
    put("sys/class/net/ens3/operstate", "up\n");
    put("sys/class/net/ens3/speed", "-1\n");
    put("sys/class/net/lo/operstate", "unknown\n");
    put("sys/class/net/br0/operstate", "up\n");
    put("sys/class/net/br0/speed", "10000\n");
    put("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
    put("sys/class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)\n");
    put("sys/class/infiniband/mlx5_1/ports/1/state", "1: DOWN\n");
    put("sys/class/infiniband/mlx5_1/ports/1/rate", "10 Gb/sec (4X SDR)\n");
    an_network_links(root, text, sizeof text);
    assert_string_equal(text, "ens3 (tells no speed), eth0 25 Gbit/s, mlx5_0 400 Gb/sec (4X NDR)");
    char little[12];
    an_network_links(root, little, sizeof little);
    assert_string_equal(little, "ens3 (tells");
}

static void a_pci_device_tells_its_link(void **state)
{
    char text[64];
    (void)state;
    snprintf(root, sizeof root, "%s", test_path("slots"));
    put("sys/bus/pci/devices/0000:1b:00.0/current_link_speed", "32.0 GT/s PCIe\n");
    put("sys/bus/pci/devices/0000:1b:00.0/current_link_width", "16\n");
    an_pcie_link(root, "0000:1B:00.0", text, sizeof text);
    assert_string_equal(text, "32.0 GT/s PCIe x16");
    an_pcie_link(root, "0000:1C:00.0", text, sizeof text);
    assert_string_equal(text, "");
    an_pcie_link(root, "../../../etc/passwd-and-a-name-that-is-too-long", text, sizeof text);
    assert_string_equal(text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(links_are_those_that_are_up_and_have_a_device),
        cmocka_unit_test(a_pci_device_tells_its_link),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
