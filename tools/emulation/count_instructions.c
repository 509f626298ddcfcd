// A plugin of qemu-user that counts the instructions of the emulated program between two markers,
// and prints the count at the second marker. A marker is the instruction `hint #101`, which ARM64
// processors ignore. The count replaces a speed measurement if there is no ARM64 machine. Load the
// plugin with the options -plugin FILE -d plugin. It works only for programs with one thread.
//
// Debian's package does not contain QEMU's plugin header. So this file declares the part of the
// interface (version 1) that it uses.
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_info;
enum qemu_plugin_op { QEMU_PLUGIN_INLINE_ADD_U64 };
enum qemu_plugin_cb_flags { QEMU_PLUGIN_CB_NO_REGS };
extern void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t,
                                                  void (*)(qemu_plugin_id_t,
                                                           struct qemu_plugin_tb *));
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
extern struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
extern const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);
extern void qemu_plugin_register_vcpu_insn_exec_inline(struct qemu_plugin_insn *,
                                                       enum qemu_plugin_op, void *, uint64_t);
extern void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *,
                                                   void (*)(unsigned, void *),
                                                   enum qemu_plugin_cb_flags, void *);
extern void qemu_plugin_outs(const char *);

#define EXPORT __attribute__((visibility("default")))
EXPORT int qemu_plugin_version = 1;
EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const struct qemu_info *info, int argc,
                               char **argv);

enum { marker = 0xd503201f | 101 << 5 };
static uint64_t count, at_first;
static int inside;

static void on_marker(unsigned cpu, void *user) {
    (void)cpu, (void)user;
    if (inside) {
        char line[64];
        snprintf(line, sizeof line, "instructions %" PRIu64 "\n", count - at_first);
        qemu_plugin_outs(line);
    }
    inside = !inside;
    at_first = count;
}

static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb *tb) {
    (void)id;
    for (size_t i = 0; i < qemu_plugin_tb_n_insns(tb); ++i) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
        uint32_t word;
        memcpy(&word, qemu_plugin_insn_data(insn), sizeof word);
        if (word == marker)
            qemu_plugin_register_vcpu_insn_exec_cb(insn, on_marker, QEMU_PLUGIN_CB_NO_REGS, NULL);
        else
            qemu_plugin_register_vcpu_insn_exec_inline(insn, QEMU_PLUGIN_INLINE_ADD_U64, &count, 1);
    }
}

int qemu_plugin_install(qemu_plugin_id_t id, const struct qemu_info *info, int argc, char **argv) {
    (void)info, (void)argc, (void)argv;
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
    return 0;
}
