"""What every view of the page must be: inside the screen, and usable by everybody (axe-core)."""

from typing import Any

from playwright.async_api import Page

OUTSIDE = """() => [...document.querySelectorAll("body *")]
  .filter((one) => !one.closest(".unseen, .skip, thead, option"))
  .map((one) => [one, one.getBoundingClientRect()])
  .filter(([one, box]) => box.width && (box.right > innerWidth + 1 || box.left < -1))
  .map(([one]) => one.outerHTML.slice(0, 120))"""
CUT = """() => [...document.querySelectorAll("main *")]
  .filter((one) => !one.closest("pre, textarea, select, .unseen, thead, meter"))
  .filter((one) => one.scrollWidth > one.clientWidth + 1)
  .filter((one) => getComputedStyle(one).display !== "inline" && getComputedStyle(one).overflowX !== "visible")
  .map((one) => one.outerHTML.slice(0, 120))"""
RUN = "async () => (await axe.run(document, { resultTypes: ['violations'] })).violations"
BAD = ("serious", "critical")


async def outside(page: Page) -> list[str]:
    """What reaches beyond the screen, or is cut."""
    wide = await page.evaluate("() => document.documentElement.scrollWidth - innerWidth")
    found: list[str] = await page.evaluate(OUTSIDE) + await page.evaluate(CUT)
    return found + ([f"the page scrolls sideways by {wide} px"] if wide > 0 else [])


async def violations(page: Page) -> list[Any]:
    """What axe-core calls serious or critical, with the elements."""
    found = await page.evaluate(RUN)
    return [(one["id"], [node["html"] for node in one["nodes"]]) for one in found if one["impact"] in BAD]
