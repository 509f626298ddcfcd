/* What a plugin is: one exported function, a descriptor, a table of parameters.
 *
 * A pipeline file names a plugin by its id or by the path of its file. The core opens the library
 * and calls keel_plugin_query_v0(). This function returns the descriptor of the plugin, a
 * keel_plugin. The descriptor has the kind of the plugin and its functions: `vtable` points to the
 * table of this kind. The core checks the values in the pipeline file against the plugin's
 * parameter table and passes them to the plugin's create function. The library stays mapped until
 * the process ends.
 *
 * EXAMPLE. The descriptor of a policy in C with one parameter:
 *
 *     static const keel_policy table = {.h = KEEL_HEADER(keel_policy), .create = create,
 *                                       .destroy = destroy, .decide = decide};
 *     static const keel_param_spec every =
 *         KEEL_INT_PARAM("every", "2", 1, 1000, "keeps one slot of this many");
 *     static const keel_param_spec *const params[] = {&every};
 *     static const keel_plugin plugin = {
 *         .h = KEEL_HEADER(keel_plugin), .min_host_abi = KEEL_ABI_VERSION,
 *         .kind = KEEL_PLUGIN_POLICY, .id = "keep_every_nth", .version = "1.0.0",
 *         .vendor = "Me", .license = "MIT", .doc = "Keeps every n-th slot.",
 *         .build_info = __VERSION__, .sanitizer = KEEL_SANITIZER_HERE,
 *         .n_params = 1, .params = params, .vtable = &table};
 *     const keel_plugin *KEEL_CALL keel_plugin_query_v0(uint32_t host_abi_version) {
 *         return &plugin;
 *     }
 *
 * In C++, sdk_policy.hpp writes all of this for policies and allocators. Everything here exists
 * since 0.1. */
#ifndef KEEL_PLUGIN_H
#define KEEL_PLUGIN_H

#include "host.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The kind of a plugin. It determines the struct to which `vtable` points. */
typedef uint32_t keel_plugin_kind;
enum keel_plugin_kind_e {
    KEEL_PLUGIN_BACKEND = 1,  /* vtable is a keel_backend (backend.h) */
    KEEL_PLUGIN_POLICY = 2,   /* vtable is a keel_policy (policy.h) */
    KEEL_PLUGIN_ALLOCATOR = 3 /* vtable is a keel_allocator (allocator.h) */
};

/* Type of a parameter, and the member of keel_param that holds its value. */
typedef uint32_t keel_param_type;
enum keel_param_type_e {
    /* An integer from min to max, in keel_param.i. */
    KEEL_PARAM_INT = 1,
    /* A number from min to max, in keel_param.f. */
    KEEL_PARAM_FLOAT = 2,
    /* true or false, as 1 or 0 in keel_param.i. */
    KEEL_PARAM_BOOL = 3,
    /* Any text, in keel_param.s. */
    KEEL_PARAM_STRING = 4,
    /* One of the words in `choices`, in keel_param.s. */
    KEEL_PARAM_CHOICE = 5,
    /* A file or folder, in keel_param.s, as an absolute path. The core makes a relative path
     * absolute. A relative path in a file starts at the folder of this file. A relative path on the
     * command line starts at the working directory. The core does not change an empty string and
     * the words in `choices`. */
    KEEL_PARAM_PATH = 6
};

/* Bits of keel_param_spec.flags. */
enum keel_param_flags_e {
    KEEL_PARAM_REQUIRED = 1 /* There is no default: the pipeline file must give a value. */
};

/* One row of a plugin's parameter table: a parameter that a pipeline file can set. The core checks
 * the values in the file against the rows, and `keel plugins show` prints the rows. A plugin does
 * not read YAML. Rows are static data of the plugin. A plugin has at most 1000 rows. The core
 * refuses a table with an invalid row, and names the row in the error. */
typedef struct keel_param_spec {
    keel_header h;
    /* Name of the parameter: [a-z][a-z0-9_]*, at most 64 characters. The keys of all rows are
     * different. */
    const char *key;
    /* What the parameter does, in one sentence, with the unit. */
    const char *doc;
    /* Type of the value. */
    keel_param_type type;
    /* Bits of keel_param_flags_e. */
    uint32_t flags;
    /* INT and FLOAT: smallest and largest value allowed. */
    double min, max;
    /* Default value, written as in YAML. It must be a value that this row allows; for PATH: an
     * absolute path, a word of `choices`, or "". NULL with KEEL_PARAM_REQUIRED. */
    const char *default_utf8;
    /* A list of words that ends with NULL. CHOICE: the words allowed. PATH: words that do not mean
     * a path, such as "auto" (the user writes "./auto" for a file with this name), or NULL. Other
     * types: NULL. */
    const char *const *choices;
} keel_param_spec;

/* The value of a parameter. A create function gets an array of pointers to these, in the order of
 * the plugin's table. Every row is present. The core has filled in defaults and checked ranges. The
 * core owns the values; they are valid during the call. */
typedef struct keel_param {
    keel_header h;
    const char *key;      /* key of the parameter's row in the table */
    keel_param_type type; /* type of the row */
    uint32_t is_default;  /* 1: the value is the default. 0: the pipeline file gives it. */
    int64_t i;            /* value of INT and BOOL */
    double f;             /* value of FLOAT; for INT the same number as i */
    const char *s;        /* value of STRING, CHOICE and PATH; else NULL */
} keel_param;

/* Bits of keel_plugin.caps. The core ignores bits that it does not know. */
enum keel_plugin_caps_e {
    KEEL_CAP_OWN_THREADS = 1 /* The plugin, or a driver that it uses, starts threads. */
};

/* The sanitizer that code is built with. The core accepts a plugin without a sanitizer. It refuses
 * a plugin whose sanitizer differs from its own. */
typedef uint32_t keel_sanitizer;
enum keel_sanitizer_e { KEEL_SANITIZER_NONE = 0,
                        KEEL_SANITIZER_ADDRESS = 1,
                        KEEL_SANITIZER_THREAD = 2 };

/* The sanitizer that the current translation unit is built with, for keel_plugin.sanitizer. */
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

/* The descriptor of a plugin. It is static const data of the plugin. The core copies it with
 * keel_adopt() (abi.h). All members up to `vtable` are required. */
typedef struct keel_plugin {
    keel_header h;
    /* The oldest ABI version of a core that the plugin works with: major << 16 | minor. */
    uint32_t min_host_abi;
    /* What the plugin does. */
    keel_plugin_kind kind;
    /* Name of the plugin: [a-z][a-z0-9_]*, at most 64 characters. If a pipeline file names the
     * plugin "x", Keel loads the file x.so, and the id of this plugin must be "x". If a pipeline
     * file gives the path of a plugin, the plugin's file may have any name. */
    const char *id;
    /* Version of the plugin, such as "1.2.0". */
    const char *version;
    /* Who made the plugin. */
    const char *vendor;
    /* SPDX identifier of the licence, such as "MIT". */
    const char *license;
    /* What the plugin is, in one sentence. */
    const char *doc;
    /* Compiler and flags, free text. */
    const char *build_info;
    /* Bits of keel_plugin_caps_e. */
    uint64_t caps;
    /* KEEL_SANITIZER_HERE. */
    keel_sanitizer sanitizer;
    /* Number of rows of the parameter table. */
    uint32_t n_params;
    /* The parameter table: n_params pointers to rows. NULL if there are none. */
    const keel_param_spec *const *params;
    /* The table of functions: a keel_backend, keel_policy or keel_allocator, according to `kind`.
     * The table is static data of the plugin. */
    const void *vtable;
    /* Returns an extension by its name: "keel.name/1", or "com.vendor.name/1" from another vendor.
     * An extension is a struct of static data that begins with a keel_header. Returns NULL if the
     * plugin does not have the extension. If the plugin has no extensions, get_extension may be
     * NULL. Thread: any thread. */
    const void *(KEEL_CALL *get_extension)(const char *id);
} keel_plugin;

/* The entry function, the only symbol that a plugin exports. It always returns the same pointer to
 * the plugin's descriptor. It returns NULL if the plugin cannot work with a core of this ABI
 * version. The function must not use a device and must not start threads or processes. The number
 * in its name is the major version of the ABI. Thread: any thread. */
typedef const keel_plugin *(KEEL_CALL *keel_plugin_query_fn)(uint32_t host_abi_version);
/* The name of the entry function, with which the core finds it in a library. */
#define KEEL_PLUGIN_QUERY_SYMBOL "keel_plugin_query_v0"
KEEL_EXPORT const keel_plugin *KEEL_CALL keel_plugin_query_v0(uint32_t host_abi_version);

/* Initializers of a keel_param_spec, for static const rows in C and C++. default_text is the
 * default as in YAML. `doc` is one sentence. */
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
