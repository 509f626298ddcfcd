#include "eval/ab/report/data.hpp"

namespace keel {

const std::string_view ab_report_style = R"css(
:root{color-scheme:light;--bg:#fbfbfa;--card:#fff;--ink:#1d2126;--soft:#5c6570;--line:#e2e4e7;--grid:#eceef0;--accent:#1f5fa8;
--good:#1a7f4b;--bad:#b3372f;--flat:#6a727c;--goodbg:#e3f4ea;--badbg:#fbe7e5;--flatbg:#eef0f2;--warnbg:#fff6dd;--warnline:#e5c45a;
--c0:#1f6fb8;--c1:#d1631c;--c2:#2b8a4b;--c3:#a8479a;--c4:#b08400;--c5:#c23b3b;--c6:#4b9db5;--c7:#6d56b0;--c8:#8a5f3c;--c9:#5f7d2e}
:root[data-theme=dark]{color-scheme:dark;--bg:#14171a;--card:#1b1f24;--ink:#e4e7ea;--soft:#9aa4af;--line:#313740;--grid:#282e36;
--accent:#7ab5f2;--good:#62cf94;--bad:#f08d84;--flat:#a4adb7;--goodbg:#17352a;--badbg:#412321;--flatbg:#2a3038;--warnbg:#352e18;
--warnline:#7d6a2a;--c0:#66aef0;--c1:#f2955a;--c2:#63c786;--c3:#dc8fd0;--c4:#e0bd4d;--c5:#f08080;--c6:#7fd0e4;--c7:#ac99ee;
--c8:#cfa481;--c9:#a8c76f}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1180px;margin:0 auto;padding:16px}
h1{font-size:1.45rem;line-height:1.25;margin:.2em 0 .1em}h2{font-size:1.1rem;margin:0 0 .2em}
p{margin:.3em 0 .7em}.note{color:var(--soft);font-size:.88rem}
section{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:14px 16px;margin:14px 0}
header{display:flex;gap:12px;align-items:flex-start;justify-content:space-between}
button,select,input{font:inherit;color:var(--ink);background:var(--card);border:1px solid var(--line);border-radius:6px;padding:3px 8px;
max-width:100%}
button{cursor:pointer}button:hover{border-color:var(--accent)}
:focus-visible{outline:2px solid var(--accent);outline-offset:1px}
.bar{display:flex;flex-wrap:wrap;gap:8px 14px;margin:.4em 0 .7em;align-items:end}
.bar label{display:flex;flex-direction:column;font-size:.78rem;color:var(--soft)}.bar label>*{font-size:.92rem}
.facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(250px,1fr));gap:4px 18px;margin:.6em 0 0}
.facts div{min-width:0;overflow-wrap:anywhere}.facts b{display:block;font-weight:500;font-size:.78rem;color:var(--soft)}
.counts{display:flex;flex-wrap:wrap;gap:8px;margin:.6em 0}
.chip{display:inline-block;border-radius:12px;padding:0 9px;white-space:nowrap;font-size:.86rem}
.better{background:var(--goodbg);color:var(--good)}.worse{background:var(--badbg);color:var(--bad)}
.same{background:var(--flatbg);color:var(--flat)}
.scroll{overflow-x:auto;max-width:100%}.tall{max-height:75vh;overflow:auto}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.86rem;width:100%}
th,td{padding:4px 8px;border-bottom:1px solid var(--line);text-align:left;white-space:nowrap}
td.r,th.r{text-align:right}td.w{white-space:normal;min-width:14em}
th{position:sticky;top:0;background:var(--card);z-index:1;font-weight:600;color:var(--soft)}
th[data-sort]{cursor:pointer}th[data-sort]:hover{color:var(--accent)}
th[data-down="1"]::after{content:" \25BC"}th[data-down="0"]::after{content:" \25B2"}
tbody tr:hover td{background:var(--grid)}
.soft{color:var(--soft)}
.warnings{background:var(--warnbg);border-color:var(--warnline)}.warnings ul{margin:.3em 0;padding-left:1.2em}
.warnings li{overflow-wrap:anywhere}
.plot{width:100%}svg{display:block;max-width:100%}td svg,.legend svg{max-width:none}
svg text{fill:var(--soft);font:12px system-ui,-apple-system,sans-serif}svg text.ink{fill:var(--ink)}
.grid{stroke:var(--grid)}.axis{stroke:var(--soft)}
.legend{display:flex;flex-wrap:wrap;gap:4px 6px;margin:6px 0 0}
.legend button{display:flex;align-items:center;gap:6px;padding:1px 8px;font-size:.84rem;border-radius:12px}
.legend button[aria-pressed=false]{opacity:.4}.legend svg{flex:none}
.panels{display:grid;grid-template-columns:repeat(auto-fit,minmax(300px,1fr));gap:14px}
.panels h3{font-size:.92rem;margin:0 0 4px;font-weight:600;overflow-wrap:anywhere}
canvas{width:100%;image-rendering:pixelated;display:block;border:1px solid var(--line)}
details summary{cursor:pointer;color:var(--accent)}
.seen{display:none}@media(max-width:900px){.seen{display:block}}
@media(max-width:600px){main{padding:8px}section{padding:10px}body{font-size:14px}header{flex-wrap:wrap}}
@media print{.bar,.legend button[aria-pressed=false],header button{display:none}.tall{max-height:none}}
)css";

} // namespace keel
