/* driver.h: the functions of NVIDIA's libraries that the backend calls, declared here and found at run time.
 *
 * Owns:      one table of functions for each library, and the few types and numbers that they take: those of the public
 *            headers cuda.h (12 and 13), nvrtc.h, cublasLt.h, cudnn.h (8 and 9) and nccl.h (2), whose binary interface is used.
 * Does not:  need any file of CUDA to be built. A missing library is a reason in words, never a crash.
 */
#ifndef AN_DEVICE_CUDA_DRIVER_H
#define AN_DEVICE_CUDA_DRIVER_H

#include "base/base.h"

typedef int cu_result; /* 0: success */
typedef int cu_device;
typedef uint64_t cu_pointer;
typedef struct cu_context *cu_context;
typedef struct cu_stream *cu_stream;
typedef struct cu_event *cu_event;
typedef struct cu_module *cu_module;
typedef struct cu_function *cu_function;
typedef struct cu_graph *cu_graph;
typedef struct cu_graph_node *cu_graph_node;
typedef struct cu_graph_exec *cu_graph_exec;
typedef struct nvrtc_program *nvrtc_program;
typedef struct lt_handle *lt_handle;
typedef struct lt_desc *lt_desc;
typedef struct lt_layout *lt_layout;
typedef struct lt_preference *lt_preference;
typedef struct dnn_handle *dnn_handle;
typedef struct dnn_object *dnn_object; /* cudnnBackendDescriptor_t */

typedef struct nccl_comm_ *nccl_comm;
typedef struct an_nccl_id { /* ncclUniqueId, passed by value */
    char bytes[128];
} an_nccl_id;

typedef struct cu_tensor_map { /* describes a tensor and the box that the copy engine (TMA) moves at a time */
    _Alignas(64) uint64_t opaque[16];
} cu_tensor_map;

typedef struct lt_algo {
    uint64_t data[8];
} lt_algo;
typedef struct lt_choice {
    lt_algo algo;
    size_t workspace_bytes;
    int state; /* 0: usable */
    float waves;
    int reserved[4];
} lt_choice;

enum { /* CUresult */
       CU_OUT_OF_MEMORY = 2,
       CU_NO_DEVICE = 100,
       CU_NOT_READY = 600
};
enum { CU_PEER_ACCESS = 2, CU_PEER_ATOMICS = 3 }; /* CUdevice_P2PAttribute */
enum {                                            /* CUdevice_attribute */
       CU_ATTR_MULTIPROCESSORS = 16,
       CU_ATTR_MAJOR = 75,
       CU_ATTR_MINOR = 76
};
enum { CU_FUNC_MOST_DYNAMIC_SHARED = 8 };                                   /* CUfunction_attribute */
enum { CU_MAP_BF16 = 9, CU_MAP_SWIZZLE_128B = 3, CU_MAP_PROMOTE_256B = 3 }; /* of cuTensorMapEncodeTiled */
enum {
    CU_STREAM_NON_BLOCKING = 1,
    CU_EVENT_NO_TIMING = 2,
    CU_EVENT_EXTERNAL = 1,
    CU_CAPTURE_THREAD_LOCAL = 1,
    CU_CAPTURE_SET = 1
};

enum { CU_LAUNCH_PROGRAMMATIC = 6 }; /* CUlaunchAttributeID: the launch may begin while the one before it ends */
typedef struct cu_launch_attribute {
    int id;
    char unused[4];
    union {
        char bytes[64];
        int allowed;
    } value;
} cu_launch_attribute;
typedef struct cu_launch_config {
    unsigned blocks[3], threads[3], shared_bytes;
    cu_stream stream;
    cu_launch_attribute *attribute;
    unsigned n_attributes;
} cu_launch_config;

enum { LT_OP_N = 0, LT_OP_T = 1 };
enum { LT_F32 = 0, LT_F16 = 2, LT_BF16 = 14 };              /* cudaDataType */
enum { LT_COMPUTE_F32 = 68, LT_COMPUTE_TF32 = 77 };         /* cublasComputeType */
enum { LT_DESC_TRANSA = 3, LT_DESC_TRANSB = 4 };            /* cublasLtMatmulDescAttributes */
enum { LT_LAYOUT_BATCHES = 5, LT_LAYOUT_BATCH_STRIDE = 6 }; /* cublasLtMatrixLayoutAttribute */
enum { LT_PREF_WORKSPACE = 1, LT_PREF_ALIGN_A = 5 /* B, C, D follow */ };

enum { DNN_F32 = 0, DNN_F16 = 2, DNN_BF16 = 9 }; /* cudnnDataType_t */
enum { DNN_CROSS_CORRELATION = 1 };              /* cudnnConvolutionMode_t */
enum { DNN_HEURISTIC_A = 3 };                    /* cudnnBackendHeurMode_t */
enum {                                           /* cudnnBackendDescriptorType_t */
       DNN_CONVOLUTION = 1,
       DNN_ENGINE = 2,
       DNN_CONFIG = 3,
       DNN_HEURISTIC = 4,
       DNN_PLAN = 5,
       DNN_FORWARD = 10,
       DNN_DW = 11,
       DNN_DX = 12,
       DNN_GRAPH = 15,
       DNN_PACK = 16,
       DNN_TENSOR = 17
};
enum { /* cudnnBackendAttributeType_t */
       DNN_TYPE_HANDLE = 0,
       DNN_TYPE_DTYPE = 1,
       DNN_TYPE_INT64 = 3,
       DNN_TYPE_FLOAT = 4,
       DNN_TYPE_ADDRESS = 6,
       DNN_TYPE_MODE = 7,
       DNN_TYPE_HEURISTIC = 8,
       DNN_TYPE_NOTE = 11,
       DNN_TYPE_OBJECT = 15
};
enum { /* cudnnBackendAttributeName_t */
       DNN_CONVOLUTION_COMPUTE = 100,
       DNN_CONVOLUTION_MODE = 101,
       DNN_CONVOLUTION_DILATION = 102,
       DNN_CONVOLUTION_STRIDE = 103,
       DNN_CONVOLUTION_PAD_BEHIND = 104,
       DNN_CONVOLUTION_PAD_BEFORE = 105,
       DNN_CONVOLUTION_AXES = 106,
       DNN_HEURISTIC_MODE = 200,
       DNN_HEURISTIC_GRAPH = 201,
       DNN_HEURISTIC_RESULTS = 202,
       DNN_CONFIG_ENGINE = 300,
       DNN_PLAN_HANDLE = 400,
       DNN_PLAN_CONFIG = 401,
       DNN_PLAN_WORKSPACE = 402,
       DNN_FORWARD_ALPHA = 700, /* beta, the convolution, w, x, y follow */
       DNN_DX_ALPHA = 706,      /* beta, the convolution, w, dx, dy */
       DNN_DW_ALPHA = 712,      /* beta, the convolution, dw, x, dy */
       DNN_GRAPH_HANDLE = 800,
       DNN_GRAPH_OPERATIONS = 801,
       DNN_TENSOR_ALIGNMENT = 900,
       DNN_TENSOR_TYPE = 901,
       DNN_TENSOR_EXTENTS = 902,
       DNN_TENSOR_STRIDES = 903,
       DNN_TENSOR_ID = 906,
       DNN_PACK_IDS = 1000,
       DNN_PACK_ADDRESSES = 1001,
       DNN_PACK_WORKSPACE = 1003,
       DNN_ENGINE_NOTES = 1303
};
enum { DNN_NOTE_TENSOR_CORES = 0, DNN_NOTE_STRICT_NAN = 9 }; /* cudnnBackendNumericalNote_t */

#define AN_CUDA_DRIVER(X)                                                                                              \
    X(init, "cuInit", (unsigned flags))                                                                                \
    X(driver_version, "cuDriverGetVersion", (int *version))                                                            \
    X(device_count, "cuDeviceGetCount", (int *n))                                                                      \
    X(device_get, "cuDeviceGet", (cu_device * out, int ordinal))                                                       \
    X(device_name, "cuDeviceGetName", (char *name, int capacity, cu_device d))                                         \
    X(device_attribute, "cuDeviceGetAttribute", (int *out, int which, cu_device d))                                    \
    X(device_memory, "cuDeviceTotalMem_v2", (size_t * out, cu_device d))                                               \
    X(device_bus_id, "cuDeviceGetPCIBusId", (char *id, int capacity, cu_device d))                                     \
    X(peer_attribute, "cuDeviceGetP2PAttribute", (int *out, int which, cu_device a, cu_device b))                      \
    X(context_retain, "cuDevicePrimaryCtxRetain", (cu_context * out, cu_device d))                                     \
    X(context_release, "cuDevicePrimaryCtxRelease_v2", (cu_device d))                                                  \
    X(context_use, "cuCtxSetCurrent", (cu_context c))                                                                  \
    X(memory_info, "cuMemGetInfo_v2", (size_t * unused, size_t * all))                                                 \
    X(memory_new, "cuMemAlloc_v2", (cu_pointer * out, size_t bytes))                                                   \
    X(memory_free, "cuMemFree_v2", (cu_pointer p))                                                                     \
    X(host_new, "cuMemHostAlloc", (void **out, size_t bytes, unsigned flags))                                          \
    X(host_free, "cuMemFreeHost", (void *p))                                                                           \
    X(to_device, "cuMemcpyHtoDAsync_v2", (cu_pointer dst, const void *src, size_t n, cu_stream s))                     \
    X(to_host, "cuMemcpyDtoHAsync_v2", (void *dst, cu_pointer src, size_t n, cu_stream s))                             \
    X(copy, "cuMemcpyDtoDAsync_v2", (cu_pointer dst, cu_pointer src, size_t n, cu_stream s))                           \
    X(fill, "cuMemsetD8Async", (cu_pointer dst, unsigned char value, size_t n, cu_stream s))                           \
    X(stream_new, "cuStreamCreate", (cu_stream * out, unsigned flags))                                                 \
    X(stream_free, "cuStreamDestroy_v2", (cu_stream s))                                                                \
    X(stream_wait, "cuStreamSynchronize", (cu_stream s))                                                               \
    X(stream_after, "cuStreamWaitEvent", (cu_stream s, cu_event e, unsigned flags))                                    \
    X(pointer_attribute, "cuPointerGetAttribute", (void *out, int which, cu_pointer p))                                \
    X(capture_begin, "cuStreamBeginCapture_v2", (cu_stream s, int mode))                                               \
    X(capture_end, "cuStreamEndCapture", (cu_stream s, cu_graph * out))                                                \
    X(capture_state, "cuStreamGetCaptureInfo_v2",                                                                      \
      (cu_stream s, int *status, uint64_t *id, cu_graph *graph, const cu_graph_node **waits_for, size_t *n))           \
    X(capture_after, "cuStreamUpdateCaptureDependencies",                                                              \
      (cu_stream s, cu_graph_node * waits_for, size_t n, unsigned how))                                                \
    X(graph_ready, "cuGraphInstantiateWithFlags", (cu_graph_exec * out, cu_graph g, unsigned long long flags))         \
    X(graph_free, "cuGraphDestroy", (cu_graph g))                                                                      \
    X(graph_exec_free, "cuGraphExecDestroy", (cu_graph_exec e))                                                        \
    X(graph_launch, "cuGraphLaunch", (cu_graph_exec e, cu_stream s))                                                   \
    X(event_new, "cuEventCreate", (cu_event * out, unsigned flags))                                                    \
    X(event_free, "cuEventDestroy_v2", (cu_event e))                                                                   \
    X(event_record, "cuEventRecordWithFlags", (cu_event e, cu_stream s, unsigned flags))                               \
    X(event_query, "cuEventQuery", (cu_event e))                                                                       \
    X(event_ms, "cuEventElapsedTime", (float *ms, cu_event from, cu_event to))                                         \
    X(module_load, "cuModuleLoadData", (cu_module * out, const void *image))                                           \
    X(module_free, "cuModuleUnload", (cu_module m))                                                                    \
    X(module_function, "cuModuleGetFunction", (cu_function * out, cu_module m, const char *name))                      \
    X(function_set, "cuFuncSetAttribute", (cu_function f, int which, int value))                                       \
    X(launch, "cuLaunchKernel",                                                                                        \
      (cu_function f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,   \
       cu_stream s, void **params, void **extra))                                                                      \
    X(launch_with, "cuLaunchKernelEx", (const cu_launch_config *c, cu_function f, void **params, void **extra))        \
    X(tensor_map, "cuTensorMapEncodeTiled",                                                                            \
      (cu_tensor_map * out, int type, uint32_t rank, cu_pointer at, const uint64_t *extents, const uint64_t *strides,  \
       const uint32_t *box, const uint32_t *steps, int interleave, int swizzle, int promotion, int fill))              \
    X(error_name, "cuGetErrorName", (cu_result r, const char **out))                                                   \
    X(error_text, "cuGetErrorString", (cu_result r, const char **out))

#define AN_CUDA_NVRTC(X)                                                                                               \
    X(version, "nvrtcVersion", (int *major, int *minor))                                                               \
    X(n_archs, "nvrtcGetNumSupportedArchs", (int *n))                                                                  \
    X(archs, "nvrtcGetSupportedArchs", (int *out))                                                                     \
    X(program_new, "nvrtcCreateProgram",                                                                               \
      (nvrtc_program * out, const char *text, const char *name, int n, const char *const *headers,                     \
       const char *const *names))                                                                                      \
    X(program_free, "nvrtcDestroyProgram", (nvrtc_program * p))                                                        \
    X(compile, "nvrtcCompileProgram", (nvrtc_program p, int n, const char *const *options))                            \
    X(log_bytes, "nvrtcGetProgramLogSize", (nvrtc_program p, size_t * n))                                              \
    X(log, "nvrtcGetProgramLog", (nvrtc_program p, char *out))                                                         \
    X(cubin_bytes, "nvrtcGetCUBINSize", (nvrtc_program p, size_t * n))                                                 \
    X(cubin, "nvrtcGetCUBIN", (nvrtc_program p, char *out))                                                            \
    X(ptx_bytes, "nvrtcGetPTXSize", (nvrtc_program p, size_t * n))                                                     \
    X(ptx, "nvrtcGetPTX", (nvrtc_program p, char *out))

#define AN_CUDA_LT(X)                                                                                                  \
    X(create, "cublasLtCreate", (lt_handle * out))                                                                     \
    X(destroy, "cublasLtDestroy", (lt_handle h))                                                                       \
    X(desc_new, "cublasLtMatmulDescCreate", (lt_desc * out, int compute, int scale_type))                              \
    X(desc_free, "cublasLtMatmulDescDestroy", (lt_desc d))                                                             \
    X(desc_set, "cublasLtMatmulDescSetAttribute", (lt_desc d, int which, const void *value, size_t n))                 \
    X(layout_new, "cublasLtMatrixLayoutCreate", (lt_layout * out, int type, uint64_t rows, uint64_t cols, int64_t ld)) \
    X(layout_free, "cublasLtMatrixLayoutDestroy", (lt_layout l))                                                       \
    X(layout_set, "cublasLtMatrixLayoutSetAttribute", (lt_layout l, int which, const void *value, size_t n))           \
    X(preference_new, "cublasLtMatmulPreferenceCreate", (lt_preference * out))                                         \
    X(preference_free, "cublasLtMatmulPreferenceDestroy", (lt_preference p))                                           \
    X(preference_set, "cublasLtMatmulPreferenceSetAttribute",                                                          \
      (lt_preference p, int which, const void *value, size_t n))                                                       \
    X(heuristic, "cublasLtMatmulAlgoGetHeuristic",                                                                     \
      (lt_handle h, lt_desc d, lt_layout a, lt_layout b, lt_layout c, lt_layout out, lt_preference p, int want,        \
       lt_choice *choices, int *got))                                                                                  \
    X(matmul, "cublasLtMatmul",                                                                                        \
      (lt_handle h, lt_desc d, const void *alpha, cu_pointer a, lt_layout la, cu_pointer b, lt_layout lb,              \
       const void *beta, cu_pointer c, lt_layout lc, cu_pointer out, lt_layout lout, const lt_algo *algo,              \
       cu_pointer workspace, size_t workspace_bytes, cu_stream s))

/* A result is a cudnnStatus_t. */
#define AN_CUDA_DNN(X)                                                                                                 \
    X(create, "cudnnCreate", (dnn_handle * out))                                                                       \
    X(destroy, "cudnnDestroy", (dnn_handle h))                                                                         \
    X(stream, "cudnnSetStream", (dnn_handle h, cu_stream s))                                                           \
    X(object_new, "cudnnBackendCreateDescriptor", (int kind, dnn_object *out))                                         \
    X(object_free, "cudnnBackendDestroyDescriptor", (dnn_object o))                                                    \
    X(set, "cudnnBackendSetAttribute", (dnn_object o, int which, int type, int64_t n, const void *value))              \
    X(get, "cudnnBackendGetAttribute", (dnn_object o, int which, int type, int64_t most, int64_t *n, void *out))       \
    X(finish, "cudnnBackendFinalize", (dnn_object o))                                                                  \
    X(execute, "cudnnBackendExecute", (dnn_handle h, dnn_object plan, dnn_object pack))

/* A result is an ncclResult_t. */
#define AN_CUDA_NCCL(X)                                                                                                \
    X(get_version, "ncclGetVersion", (int *out))                                                                       \
    X(identify, "ncclGetUniqueId", (an_nccl_id * out))                                                                 \
    X(init, "ncclCommInitRank", (nccl_comm * out, int ranks, an_nccl_id id, int rank))                                 \
    X(abort, "ncclCommAbort", (nccl_comm c))                                                                           \
    X(sum, "ncclAllReduce", (cu_pointer in, cu_pointer out, size_t n, int type, int how, nccl_comm c, cu_stream s))    \
    X(sum_part, "ncclReduceScatter",                                                                                   \
      (cu_pointer in, cu_pointer out, size_t n, int type, int how, nccl_comm c, cu_stream s))                          \
    X(sum_at, "ncclReduce",                                                                                            \
      (cu_pointer in, cu_pointer out, size_t n, int type, int how, int root, nccl_comm c, cu_stream s))                \
    X(gather, "ncclAllGather", (cu_pointer in, cu_pointer out, size_t n, int type, nccl_comm c, cu_stream s))          \
    X(send_all, "ncclBroadcast",                                                                                       \
      (cu_pointer in, cu_pointer out, size_t n, int type, int root, nccl_comm c, cu_stream s))

#define AN_CUDA_FIELD(name, symbol, arguments) cu_result(*name) arguments;
typedef struct an_cuda_driver {
    void *library;
    int version; /* 13000 for CUDA 13.0 */
    AN_CUDA_DRIVER(AN_CUDA_FIELD)
} an_cuda_driver;

typedef struct an_nvrtc {
    void *library;
    int major, minor;
    uint64_t build; /* tells builds of one version apart (an_dl_build) */
    char path[512];
    AN_CUDA_NVRTC(AN_CUDA_FIELD)
} an_nvrtc;

typedef struct an_cublaslt {
    void *library;
    size_t library_version; /* 130001, ... */
    char path[512];
    AN_CUDA_LT(AN_CUDA_FIELD)
} an_cublaslt;

typedef struct an_cudnn {
    void *library;
    size_t library_version; /* 91501 for 9.15.1, 8907 for 8.9.7 */
    char path[512];
    const char *(*error_text)(int r);
    AN_CUDA_DNN(AN_CUDA_FIELD)
} an_cudnn;

typedef struct an_nccl {
    void *library;
    int version; /* 22703 for 2.27.3 */
    char path[512];
    const char *(*error_text)(int r);
    AN_CUDA_NCCL(AN_CUDA_FIELD)
} an_nccl;

/* AN_OK, or AN_E_ENV and a sentence: where it was searched for, and what to do. Libraries stay loaded: the driver does not
 * survive being unloaded while its threads run. `newest`: the highest major version whose code the driver accepts. */
an_status an_cuda_driver_find(an_err *err, an_cuda_driver *out);
an_status an_nvrtc_find(an_err *err, int newest, an_nvrtc *out);
/* The functions of a copy of NVRTC. The library that they load when they compile is found beside the original's file alone:
 * an_nvrtc_builtins loads it, for the copies to find it there already (NULL: it is elsewhere). */
an_status an_nvrtc_fill(an_err *err, void *library, const an_nvrtc *like, an_nvrtc *out);
void *an_nvrtc_builtins(const an_nvrtc *c);
an_status an_cublaslt_find(an_err *err, int newest, an_cublaslt *out);
an_status an_cudnn_find(an_err *err, an_cudnn *out);
an_status an_nccl_find(an_err *err, an_nccl *out);

#endif
