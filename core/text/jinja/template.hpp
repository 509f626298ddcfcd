#pragma once

#include "text/jinja/ast.hpp"

#include <ctime>
#include <string>
#include <string_view>

namespace keel::jinja {

// A Jinja template as chat templates use it, with the settings of Hugging Face transformers. The
// template is not trusted: its size, work, memory and output are limited. Immutable; render() is
// thread-safe.
class Template {
  public:
    // Parses the source. `name`: the file, for messages. Throws Error(input) "NAME:LINE: ..." for
    // an invalid template and for a construct that is not supported.
    Template(std::string_view source, std::string name, const Limits &limits = {});

    // `variables`: a dict. `now`: the time for strftime_now(). Throws Error(input) "NAME:LINE: ..."
    // if the template fails, exceeds a limit, or refuses the conversation with raise_exception().
    Text render(const Dict &variables, std::time_t now) const;

    const std::string &name() const noexcept { return name_; }

  private:
    std::string name_;
    Limits limits_;
    Body body_;
};

} // namespace keel::jinja
