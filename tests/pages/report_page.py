"""Opens reports of `keel ab` in Chromium: report_page.py FOLDER OLD [SCREENSHOTS]

FOLDER has report.html and results.jsonl. OLD has a report.html of results without the prompts'
text. SCREENSHOTS is a folder for pictures of the page.
"""
import csv
import json
import os
import sys

from browser import Browser, find_chromium

WIDTHS, COLOURS = (375, 1024, 1600), ("light", "dark")
failures = []


def check(fact, what):
    if not fact:
        failures.append(what)
        print("FAILED: " + what)


def sizes(browser, name):
    """No part of the page is wider than the window, and from 1024 pixels on no table is cut."""
    width = browser.run("[document.scrollingElement.scrollWidth, innerWidth]")
    check(width[0] <= width[1], "%s: the page is %d pixels wide in a window of %d" %
          (name, width[0], width[1]))
    cut = browser.run("""Array.from(document.querySelectorAll(".scroll"))
        .filter(box => box.scrollWidth > box.clientWidth + 1)
        .map(box => box.closest("section").querySelector("h2").textContent)""")
    if browser.run("innerWidth") >= 1024:
        check(not cut, "%s: a column is cut in %s" % (name, cut))
    cut = browser.run("""Array.from(document.querySelectorAll("svg"))
        .filter(svg => svg.getBoundingClientRect().right > innerWidth + 1).length""")
    check(cut == 0, "%s: %s drawings leave the window" % (name, cut))


def parts(browser):
    """The answer and the plot come first; every part is there; the title's markup is text."""
    titles = browser.run("Array.from(document.querySelectorAll('h2'), h => h.textContent)")
    check(titles[:2] == ["Answer", "Quality against bytes held"], "first parts: %s" % titles[:2])
    for title in ("All contrasts", "Verdicts", "Pairs of hits", "At the same bytes",
                  "Arms, tasks and budgets", "Quality against speed", "Kept tokens of two arms",
                  "All results", "Speed", "Methods", "Downloads", "What ran"):
        check(title in titles, "there is no part %r" % title)
    check(browser.run("document.querySelectorAll('img').length") == 0, "a title became an image")
    check(browser.run("document.querySelector('h1').textContent.includes('<img')"),
          "the title lost its text")
    check(browser.run("document.querySelector('.answer p').textContent.length > 40"),
          "there is no answer")
    check(browser.run("document.querySelectorAll('.pairs').length") >= 4, "no 2 x 2 tables")
    check(browser.run("document.querySelectorAll('.forest svg').length") > 10, "no forest plot")
    check(browser.run("document.querySelectorAll('.multiples svg').length") >= 8, "no multiples")
    check(browser.run("document.querySelectorAll('.tokens span').length") > 3, "no kept tokens")
    check(browser.run("document.body.textContent.includes('(interpolated)')"),
          "no contrast is marked as interpolated")


ACTIVE = "document.activeElement"


def focus(browser, selector, most=400):
    """Presses Tab until the focus is on `selector`. False if it is never reached."""
    browser.run("document.activeElement.blur(), scrollTo(0, 0), getSelection().removeAllRanges()")
    for _ in range(most):
        browser.tab()
        if browser.run("%s.matches(%s)" % (ACTIVE, json.dumps(selector))):
            return True
    return False


def keyboard(browser):
    """All kinds of controls are reached with Tab, show their focus, and work."""
    browser.run("document.body.tabIndex = -1, document.body.focus()")
    for selector in ("select", ".legend button", ".opener", ".sort", "input[type=search]",
                     "details > summary", ".tokens", "#copy-methods", "#save-cells"):
        if not focus(browser, selector):
            check(False, "Tab never reaches " + selector)
            continue
        check(browser.run("getComputedStyle(%s).outlineStyle !== 'none'" % ACTIVE),
              "the focus on %s is not visible" % selector)
    if focus(browser, ".legend button"):
        before = browser.run(ACTIVE + ".getAttribute('aria-pressed')")
        browser.enter()
        browser.settle()
        after = browser.run("document.querySelector('.legend button').getAttribute('aria-pressed')")
        check(before == "true" and after == "false", "Enter does not hide a line of the plot")
    if focus(browser, ".opener"):
        browser.enter()
        check(browser.run("document.querySelector('tr.details .pairs') !== null"),
              "Enter does not open a contrast's numbers")
        check(browser.run(ACTIVE + ".getAttribute('aria-expanded')") == "true",
              "an open row has no aria-expanded")
        browser.enter()
        check(browser.run("document.querySelector('tr.details') === null"),
              "Enter does not close a contrast's numbers")
    if focus(browser, ".sort"):
        browser.enter()
        check(browser.run(ACTIVE + ".closest('th').getAttribute('aria-sort')") == "descending",
              "Enter does not sort a table")
    if focus(browser, "select"):
        browser.press("ArrowDown", 40)
        browser.settle()
        check(browser.run(ACTIVE + ".selectedIndex") == 1, "ArrowDown does not change a choice")
    if focus(browser, "#copy-methods"):
        browser.enter()
        browser.settle()
        check("copied" in browser.run("document.querySelector('[role=status]').textContent"),
              "the copy button says nothing")


def kept_tokens(browser):
    """Two arms can be chosen, and the text between them changes."""
    script = """(() => {
      const part = Array.from(document.querySelectorAll("section"))
        .find(s => s.querySelector("h2").textContent.startsWith("Kept tokens"));
      const text = () => part.querySelector(".tokens").innerHTML;
      const before = text(), arm = part.querySelectorAll("select")[1];
      arm.selectedIndex = (arm.selectedIndex + 1) % arm.options.length;
      arm.dispatchEvent(new Event("change"));
      const options = Array.from(arm.options, o => o.value);
      return [before !== text(), part.querySelector(".tokens").textContent.length, options];
    })()"""
    changed, length, options = browser.run(script)
    check(changed, "another arm does not change the kept tokens")
    check(length > 300, "the prompt has only %d characters" % length)
    check("full" in options and "window · tokens:48" in options, "arms to choose: %s" % options)


def downloads(browser, folder, results):
    """The files are written without a network and hold the records' numbers."""
    browser.call("Page.setDownloadBehavior", behavior="allow", downloadPath=folder)
    values = {}
    with open(results, encoding="utf-8") as file:
        for line in file:
            record = json.loads(line)
            if record.get("kind") == "item" and record["metric"] == "hit":
                key = record["arm"], record["budget"], record["item"]
                values[key] = record["value"]
    names = {"save-cells": "cells.csv", "save-contrasts": "contrasts.csv",
             "save-items": "items.csv", "save-json": "report.json"}
    for control, name in names.items():
        path = os.path.join(folder, name)
        check(focus(browser, "#" + control), "Tab never reaches " + control)
        browser.enter()
        for _ in range(100):
            if os.path.exists(path) and os.path.getsize(path) > 0:
                break
            browser.run("new Promise(done => setTimeout(done, 50))")
        if not os.path.exists(path):
            check(False, "%s was not written" % name)
            return
    with open(os.path.join(folder, "items.csv"), encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["metric"] == "hit"]
    found = {(row["arm"], row["budget"], row["item"]): float(row["value"]) for row in rows}
    expected = {key: value for key, value in values.items() if not key[0].endswith("#again")}
    check(expected and all(found.get(key) == value for key, value in expected.items()),
          "items.csv differs from the records")
    with open(os.path.join(folder, "cells.csv"), encoding="utf-8", newline="") as file:
        cells = list(csv.DictReader(file))
    check({"arm", "mean", "kv_bytes", "peak_kv_bytes"} <= set(cells[0]), "cells.csv lacks columns")
    with open(os.path.join(folder, "contrasts.csv"), encoding="utf-8", newline="") as file:
        contrasts = list(csv.DictReader(file))
    check({"verdict", "effect", "both", "only_a", "identical"} <= set(contrasts[0]),
          "contrasts.csv lacks columns")
    with open(os.path.join(folder, "report.json"), encoding="utf-8") as file:
        everything = json.load(file)
    check(len(everything["cells"]) == len(cells) and everything["header"]["config_hash"],
          "report.json lacks numbers")


def paper(browser):
    """Printed, everything is open, nothing scrolls, and rows are not split."""
    browser.show(1024, colours="dark", medium="print")
    browser.settle()
    check(browser.run("document.querySelectorAll('details:not([open])').length") == 0,
          "a part is closed on paper")
    boxes = browser.run("""Array.from(document.querySelectorAll(".scroll, .tokens")).filter(box =>
        getComputedStyle(box).overflowY !== "visible" ||
        box.scrollHeight > box.clientHeight + 2).length""")
    check(boxes == 0, "%s boxes scroll on paper" % boxes)
    check(browser.run("getComputedStyle(document.querySelector('td')).color") == "rgb(29, 33, 38)",
          "paper is not light")
    split = browser.run("""Array.from(document.querySelectorAll("tr"))
        .filter(row => getComputedStyle(row).breakInside !== "avoid").length""")
    check(split == 0, "%s rows may be split between pages" % split)
    check(browser.pdf().startswith(b"%PDF"), "the page does not print")
    browser.show(1024)
    browser.settle()
    check(browser.run("document.querySelectorAll('details:not([open])').length") > 0,
          "parts stay open after printing")


def without_text(browser):
    """Results of older programs have no prompts: the page says so and shows the rest."""
    check(browser.run("document.body.textContent.includes('is not in these results')"),
          "the page does not say that the prompts' text is missing")
    titles = browser.run("Array.from(document.querySelectorAll('h2'), h => h.textContent)")
    check("What was kept" in titles and "Downloads" in titles, "parts of old results: %s" % titles)


def main():
    folder, old = sys.argv[1:3]
    pictures = sys.argv[3] if len(sys.argv) > 3 else None
    page = os.path.join(folder, "report.html")
    with Browser(find_chromium()) as browser:
        for width in WIDTHS:
            for colours in COLOURS:
                browser.show(width, colours=colours)
                browser.open(page)
                sizes(browser, "%d pixels, %s" % (width, colours))
                if pictures:
                    browser.screenshot(os.path.join(pictures, "%d-%s.png" % (width, colours)), True)
        browser.show(1024)
        browser.open(page)
        parts(browser)
        kept_tokens(browser)
        keyboard(browser)
        browser.open(page)
        downloads(browser, browser.folder, os.path.join(folder, "results.jsonl"))
        paper(browser)
        browser.open(os.path.join(old, "report.html"))
        without_text(browser)
        sizes(browser, "old results")
        if pictures:
            with open(os.path.join(pictures, "paper.pdf"), "wb") as file:
                file.write(browser.pdf())
        for error in browser.errors:
            check(False, error)
    print("%d checks failed" % len(failures) if failures else "the report is fine")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
