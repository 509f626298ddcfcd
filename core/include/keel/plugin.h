/* What a plugin is: one exported symbol, a descriptor, a table of parameters. */
#ifndef KEEL_PLUGIN_H
#define KEEL_PLUGIN_H

#include "host.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef uint32_t keel_plugin_kind;
enum keel_plugin_kind_e {
    KEEL_PLUGIN_BACKEND = 1,  /* vtable is a keel_backend (backend.h) */
    KEEL_PLUGIN_POLICY = 2,   /* vtable is a keel_policy (policy.h) */
    KEEL_PLUGIN_ALLOCATOR = 3 /* vtable is a keel_allocator (allocator.h) */
};

typedef uint32_t keel_param_type;
enum keel_param_type_e {
    /* keel_param.i; min..max */
    KEEL_PARAM_INT = 1,
    /* keel_param.f; min..max */
    KEEL_PARAM_FLOAT = 2,
    /* keel_param.i: 0 or 1 */
    KEEL_PARAM_BOOL = 3,
    /* keel_param.s */
    KEEL_PARAM_STRING = 4,
    /* keel_param.s: one of choices */
    KEEL_PARAM_CHOICE = 5,
    /* keel_param.s: a file or folder, absolute: the core takes a relative one from the folder of
     * the file that names it (from the command line: the working directory); "" and the words of
     * choices stay as they are */
    KEEL_PARAM_PATH = 6
};

enum keel_param_flags_e {
    KEEL_PARAM_REQUIRED = 1 /* no default: the config must name it */
};

/* One row of a plugin's parameter table. The core checks the YAML against it and shows it in
 * `keel plugins show`; a plugin never sees YAML. Static data of the plugin's. */
typedef struct keel_param_spec {
    keel_header h;
    /* snake_case */
    const char *key;
    /* one sentence, with the unit */
    const char *doc;
    keel_param_type type;
    /* keel_param_flags_e */
    uint32_t flags;
    /* inclusive range of INT and FLOAT */
    double min, max;
    /* as it would stand in YAML; NULL with KEEL_PARAM_REQUIRED */
    const char *default_utf8;
    /* CHOICE: the words, NULL at the end. PATH: words that are no path ("auto"; a file of that
     * name is "./auto"), or NULL. Else NULL */
    const char *const *choices;
} keel_param_spec;

/* A parameter's value. The core hands over an array of pointers in the order of the plugin's
 * table, every row present, defaults filled in, ranges checked. The core's, valid during the
 * call. */
typedef struct keel_param {
    keel_header h;
    const char *key;
    keel_param_type type;
    uint32_t is_default; /* 1: the config did not name it */
    int64_t i;           /* INT, BOOL */
    double f;            /* FLOAT (INT: the same as i) */
    const char *s;       /* STRING, CHOICE, PATH; else NULL */
} keel_param;

enum keel_plugin_caps_e {
    KEEL_CAP_OWN_THREADS = 1 /* starts threads of its own (a driver's count) */
};

typedef uint32_t keel_sanitizer;
enum keel_sanitizer_e { KEEL_SANITIZER_NONE = 0,
                        KEEL_SANITIZER_ADDRESS = 1,
                        KEEL_SANITIZER_THREAD = 2 };

/* What this translation unit is built with: for keel_plugin.sanitizer. */
#if defined(__SANITIZE_ADDRESS__)
#define KEEL_SANITIZER_HERE KEEL_SANITIZER_ADDRESS
#elif defined(__SANITIZE_THREAD__)
#define KEEL_SANITIZER_HERE KEEL_SANITIZER_THREAD
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KEEL_SANITIZER_HERE KEEL_SANITIZER_ADDRESS
#elif __has_feature(thread_sanitizer)
#define KEEL_SANITIZER_HERE KEEL_SANITIZER_THREAD
#endif
#endif
#ifndef KEEL_SANITIZER_HERE
#define KEEL_SANITIZER_HERE KEEL_SANITIZER_NONE
#endif

/* The descriptor. Static const data of the plugin's. The core adopts it by copy; required up to
 * `vtable`. */
typedef struct keel_plugin {
    keel_header h;
    /* the oldest core it works with: major << 16 | minor */
    uint32_t min_host_abi;
    keel_plugin_kind kind;
    /* the name a config uses: [a-z][a-z0-9_]*; for a file NAME.so it is NAME */
    const char *id;
    /* of the plugin, "1.2.0" */
    const char *version;
    const char *vendor;
    /* SPDX */
    const char *license;
    /* one sentence: what it is */
    const char *doc;
    /* compiler and flags, free text */
    const char *build_info;
    /* keel_plugin_caps_e; unknown bits are ignored */
    uint64_t caps;
    keel_sanitizer sanitizer;
    uint32_t n_params;
    /* n_params rows; NULL if none */
    const keel_param_spec *const *params;
    /* by kind */
    const void *vtable;
    /* An extension by name ("keel.name/1", "com.vendor.name/1"), NULL if unknown. The whole slot
     * may be NULL: no extensions. since 0.1. [any] */
    const void *(KEEL_CALL *get_extension)(const char *id);
} keel_plugin;

/* The only symbol that a plugin exports. Pure and cheap: touches no device, starts nothing,
 * returns the same pointer each time. NULL: this plugin cannot serve a host with that ABI. The
 * major version is in the name. since 0.1. [any] */
typedef const keel_plugin *(KEEL_CALL *keel_plugin_query_fn)(uint32_t host_abi_version);
#define KEEL_PLUGIN_QUERY_SYMBOL "keel_plugin_query_v0"
KEEL_EXPORT const keel_plugin *KEEL_CALL keel_plugin_query_v0(uint32_t host_abi_version);

/* Rows of a parameter table, for static const tables in C and C++. */
#define KEEL_INT_PARAM(key, default_text, min, max, doc) \
    { KEEL_HEADER(keel_param_spec), key, doc, KEEL_PARAM_INT, 0, min, max, default_text, NULL }
#define KEEL_FLOAT_PARAM(key, default_text, min, max, doc) \
    { KEEL_HEADER(keel_param_spec), key, doc, KEEL_PARAM_FLOAT, 0, min, max, default_text, NULL }
#define KEEL_BOOL_PARAM(key, default_text, doc) \
    { KEEL_HEADER(keel_param_spec), key, doc, KEEL_PARAM_BOOL, 0, 0, 1, default_text, NULL }
#define KEEL_STRING_PARAM(key, default_text, doc) \
    { KEEL_HEADER(keel_param_spec), key, doc, KEEL_PARAM_STRING, 0, 0, 0, default_text, NULL }
#define KEEL_PATH_PARAM(key, default_text, doc) \
    { KEEL_HEADER(keel_param_spec), key, doc, KEEL_PARAM_PATH, 0, 0, 0, default_text, NULL }
#define KEEL_CHOICE_PARAM(key, default_text, choices, doc) \
    { KEEL_HEADER(keel_param_spec), key, doc, KEEL_PARAM_CHOICE, 0, 0, 0, default_text, choices }

#ifdef __cplusplus
}
#endif
#endif
