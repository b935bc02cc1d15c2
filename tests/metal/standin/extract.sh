#!/bin/sh
# extract.sh TABLE >api.def: the rows of a table of Apple's API that compute work can ask. TABLE has tab-separated lines
# kind, owner, +/-, selector or name, result or value, arguments, introduced, deprecated: facts of pyobjc's metadata (SDK 26.5).
set -eu
cat <<'END'
/* api.def: selectors, classes and enum values of Apple's SDK 26.5 that compute work can ask: facts, from the metadata of
 * pyobjc (metadata/raw/arm64-26.5.fwinfo), by extract.sh. Z is BOOL. Versions are major * 100 + minor.
 *     METHOD(owner, kind, sign, selector, result, arguments, first macOS, deprecated in or 0)
 *     VALUE(enum, name, value) */
END
awk -F '\t' '
function version(v,   p) { if (v == "") return 0; split(v, p, "."); return p[1] * 100 + p[2] }
BEGIN {
    owners = "MTLAllocation MTLArchitecture MTLBinaryArchive MTLBinaryArchiveDescriptor MTLBlitCommandEncoder MTLBuffer " \
        "MTLCommandBuffer MTLCommandBufferDescriptor MTLCommandBufferEncoderInfo MTLCommandEncoder MTLCommandQueue " \
        "MTLCommandQueueDescriptor MTLCompileOptions MTLComputeCommandEncoder MTLComputePassDescriptor MTLComputePipelineDescriptor " \
        "MTLComputePipelineState MTLCounter MTLCounterSet MTLDevice MTLEvent MTLFence MTLFunction MTLFunctionConstantValues MTLHeap " \
        "MTLHeapDescriptor MTLIndirectCommandBuffer MTLIndirectCommandBufferDescriptor MTLIndirectComputeCommand MTLLibrary " \
        "MTLPipelineBufferDescriptor MTLPipelineBufferDescriptorArray MTLResidencySet MTLResidencySetDescriptor MTLResource MTLSharedEvent"
    n = split(owners, o, " "); for (i = 1; i <= n; i++) wanted[o[i]] = 1
    values = "MTLArgumentBuffersTier MTLBarrierScope MTLCPUCacheMode MTLCommandBufferError MTLCommandBufferErrorOption " \
        "MTLCommandBufferStatus MTLCommandEncoderErrorState MTLDataType MTLDispatchType MTLFunctionType MTLGPUFamily " \
        "MTLHazardTrackingMode MTLHeapType MTLIndirectCommandType MTLLanguageVersion MTLLibraryError MTLLibraryOptimizationLevel " \
        "MTLLibraryType MTLMathFloatingPointFunctions MTLMathMode MTLMutability MTLPipelineOption MTLPurgeableState MTLResourceOptions " \
        "MTLResourceUsage MTLShaderValidation MTLStorageMode"
    n = split(values, o, " "); for (i = 1; i <= n; i++) enumerated[o[i]] = 1
}
# What only graphics or ray tracing asks, and Metal 4 beyond its own classes.
/[Tt]exture|[Ss]ampl(er|e[A-Z]|ePos)|cceleration|[Rr]ender|[Vv]isibleFunction|ntersection|[Ss]parse|IO(File|Command|Handle)|[Dd]epth|[Rr]asterOrder|Drawable|Barycentric|MSAA|Imageblock|StageIn|Remote|remote|\tpatch(Type|Control)|Attributes/ { next }
($1 == "protocol" || $1 == "class") && $2 in wanted {
    printf "METHOD(%s, %s, \"%s\", \"%s\", \"%s\", \"%s\", %d, %d)\n", $2, $1, $3, $4, $5, $6, version($7), version($8)
}
$1 == "enum" && $2 in enumerated { printf "VALUE(%s, %s, %s)\n", $2, $4, $5 }
' "$1"
