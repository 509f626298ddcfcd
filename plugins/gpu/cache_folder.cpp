#include "gpu/cache_folder.hpp"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

namespace keel_gpu {
namespace {

// NULL: it is private.
const char *why_not_private(const struct stat &facts) noexcept {
    if (!S_ISDIR(facts.st_mode)) return "it is no folder";
    if (facts.st_uid != geteuid()) return "it is another user's";
    return (facts.st_mode & (S_IWGRP | S_IWOTH)) != 0 ? "others may write to it (chmod go-w)" : nullptr;
}

} // namespace

bool is_private_folder(const char *path) noexcept {
    struct stat facts;
    return stat(path, &facts) == 0 && why_not_private(facts) == nullptr;
}

void warn_of_unused_folder(const keel_host *host, const char *word) noexcept {
    if (word[0] == 0 || strcmp(word, "auto") == 0 || strcmp(word, "off") == 0) return;
    struct stat facts;
    if (stat(word, &facts) != 0) return;
    const char *why = why_not_private(facts);
    if (why == nullptr || host == nullptr || !KEEL_HAS(host, keel_host, log)) return;
    char text[512];
    snprintf(text, sizeof text, "cache: compiled kernels are not kept in '%.300s': %s", word, why);
    host->log(host, KEEL_LOG_WARN, text);
}

} // namespace keel_gpu
