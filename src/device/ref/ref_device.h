/* ref_device.h: the oracle as a device: memory on the host, and no plans. A context that has opened it evaluates nodes
 * (src/runtime/oracle_eval.c). */
#ifndef AN_DEVICE_REF_REF_DEVICE_H
#define AN_DEVICE_REF_REF_DEVICE_H

#include "device/device.h"

extern const an_backend an_backend_ref;

#endif
