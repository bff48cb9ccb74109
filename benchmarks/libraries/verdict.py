"""What the two processes found about an object, in a word and a sentence."""

from __future__ import annotations

from typing import Any, Final

EXACT: Final = "exact"
REFUSED: Final = "refused"
WARNED: Final = "differs, with a warning"
OWN_TOO: Final = "the library's own saving differs as well"
SILENT: Final = "differs, and nobody said so"
UNTRIED: Final = "not tried"
OUTCOMES: Final = (EXACT, REFUSED, WARNED, OWN_TOO, SILENT, UNTRIED)


def judged(saved: dict[str, Any], resumed: dict[str, Any]) -> dict[str, str]:
    """The outcome for an object.

    Args:
        saved: What `child.save` returned.
        resumed: What `child.resume` returned.

    Returns:
        ``outcome``, one of `OUTCOMES`; ``own``, what the library's own saving does: ``exact``, or how it differs; and
        ``note``, what milepost said or how it differs.
    """
    untried = saved.get("untried") or (not saved.get("milepost") and resumed.get("untried"))
    if untried:
        return {"outcome": UNTRIED, "own": "", "note": untried}
    own = saved["own"] or _first(resumed.get("own", {})) or EXACT
    if saved["milepost"]:
        return {"outcome": REFUSED, "own": own, "note": saved["milepost"]}
    found = resumed["milepost"]
    differs = found["at once"] or found["later"]
    if not differs and not found["said"]:
        return {"outcome": EXACT, "own": own, "note": ""}
    if found["said"]:
        return {"outcome": REFUSED, "own": own, "note": f"when it is restored: {found['said']}"}
    warned = saved["warned"] or found["warned"]
    if warned:
        return {"outcome": WARNED, "own": own, "note": f"{differs}; warned: {warned}"}
    other = resumed.get("own", {})
    worse = own == EXACT or (found["at once"] and other and not other["said"] and not other["at once"])
    return {"outcome": SILENT if worse else OWN_TOO, "own": own, "note": differs}


def _first(found: dict[str, str]) -> str:
    return next((text for text in (found.get(key, "") for key in ("said", "at once", "later")) if text), "")
