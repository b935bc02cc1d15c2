# prototypes.awk: reads api.def, foundation.def, then the stand-in's sources; writes C that asserts, for each row of a method table, that the
# function has the type that Apple's metadata gives the method. Printed behind the source itself, of which it is a part.
function types(code,   n, out) { # "Q,^v" to C, alternatives of const between "|"
    n = code
    if (n == "@") return "id"
    if (n == "Q") return "uint64_t"
    if (n == "q") return "int64_t"
    if (n == "Z") return "BOOL"
    if (n == "C") return "uint8_t"
    if (n == "i") return "int32_t"
    if (n == "d") return "double"
    if (n == "v") return "void"
    if (n == ":") return "SEL"
    if (n == "r*") return "const char *"
    if (n == "^v") return "void *|const void *"
    if (n == "^@") return "id *|const id *"
    if (n == "^Q") return "uint64_t *|const uint64_t *"
    if (n == "@?") return "void *|struct block *"
    if (n ~ /^\{MTLSize=/) return "MTLSize"
    if (n ~ /^\{_NSRange=/) return "NSRange"
    if (n ~ /^\{NSOperatingSystemVersion=/) return "version"
    return "unknown_type_" n
}
# All choices of alternatives, as one condition.
function condition(fn, result, args, i, n, done,   r, a, k, out) {
    if (i == 0) {
        r = split(types(result), a, "|")
        for (k = 1; k <= r; k++) out = out (k > 1 ? " || " : "") condition(fn, result, args, 1, n, a[k] " (*)(id, SEL")
        return out
    }
    if (i > n) return "__builtin_types_compatible_p(__typeof__(&" fn "), " done "))"
    r = split(types(A[i]), a, "|")
    for (k = 1; k <= r; k++) out = out (k > 1 ? " || " : "") condition(fn, result, args, i + 1, n, done ", " a[k])
    return out
}
/^METHOD\(/ {
    split($0, f, "\""); split($0, o, /[(,]/)
    sign = f[2] == "+" ? "+" : ""
    fact[o[2], sign f[4]] = f[6] "\t" f[8]
}
/^    \{"[A-Za-z0-9_]+",/ { # a row may take several lines
    while ($0 !~ /\},$/ && (getline more) > 0) { sub(/^ +/, " ", more); $0 = $0 more }
    if ($0 !~ /METHOD_OF\(/) next
    split($0, f, "\""); fn = $0; sub(/.*METHOD_OF\(/, "", fn); sub(/\).*/, "", fn)
    row[++rows] = f[2] SUBSEP f[4] SUBSEP fn
}
END {
    for (i = 1; i <= rows; i++) {
        split(row[i], r, SUBSEP)
        what = (r[1], r[2]) in fact ? fact[r[1], r[2]] : fact["NSObject", r[2]]
        split(what, w, "\t")
        n = w[2] == "" ? 0 : split(w[2], A, ",")
        printf "_Static_assert(%s, \"%s %s is not %s(%s)\");\n", condition(r[3], w[1], w[2], 0, n, ""), r[1], r[2], w[1], w[2]
    }
    printf "enum { ROWS_COMPARED = %d };\n", rows
}
