#ifndef ANNEAL_H
#define ANNEAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum an_status {
    AN_OK = 0,
    AN_E_USAGE,    /* a wrong argument, key or value                                   */
    AN_E_SHAPE,    /* shapes, axes or ranks that do not fit                            */
    AN_E_DTYPE,    /* a dtype the operation does not take                              */
    AN_E_CONTEXT,  /* a tensor of another context, or one that an_reset has ended      */
    AN_E_NOMEM,    /* the host or the device has no memory                             */
    AN_E_BUDGET,   /* the plan does not fit the memory budget                          */
    AN_E_ENV,      /* something outside is missing or refuses: compiler, cache, driver */
    AN_E_DEVICE,   /* the device failed or disappeared                                 */
    AN_E_IO,       /* a file cannot be read or written, or is damaged                  */
    AN_E_DATA,     /* data out of range: an id, a label                                */
    AN_E_NUMERIC,  /* NaN or infinity where training cannot go on                      */
    AN_E_UNSUPPORTED,
    AN_E_INTERNAL  /* a check of our own failed: please report it                      */
} an_status;

typedef enum an_dtype { AN_F32 = 0, AN_BF16, AN_F16, AN_F64, AN_I32, AN_I64, AN_U8, AN_BOOL, AN_N_DTYPES } an_dtype;

#endif
