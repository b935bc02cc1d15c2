/* network.h: what connects this machine to others: its network cards and InfiniBand ports, and how fast they say they are.
 *
 * Owns:       reading /sys/class/net and /sys/class/infiniband of Linux, below a root folder that tests replace. Elsewhere nothing is
 *             found.
 * Does not:   send anything, or know which of them a library takes. */
#ifndef AN_PLATFORM_NETWORK_H
#define AN_PLATFORM_NETWORK_H

#include <stddef.h>

/* "eth0 25 Gbit/s, mlx5_0 400 Gb/sec (4X NDR)" into `out`; "" where none is up. Only what has a device behind it is listed: no
 * loopback, no bridges. root: "". */
void an_network_links(const char *root, char *out, size_t n);
/* "32.0 GT/s PCIe x16" of a PCI device ("0000:1b:00.0"); "" where the system does not tell. */
void an_pcie_link(const char *root, const char *bus_id, char *out, size_t n);

#endif
