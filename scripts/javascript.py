"""Type-checks our JavaScript against the d.ts of the installed `cursor-sdk`: `tsc --checkJs`, strict.

The compiler comes from npm, once, into `.venv/javascript`. Without npm this says so and passes, except in CI.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
CACHE: Final = ROOT / ".venv" / "javascript"
PACKAGES: Final = ("typescript@7.0.2", "@types/node@24.19.2")
CHECKED: Final = ("src/caretway/**/*.mjs", "tests/contract/**/*.mjs")


def main() -> int:
    spec = importlib.util.find_spec("cursor_sdk")
    if spec is None or spec.origin is None:
        return unchecked("cursor-sdk has no wheel for this platform")
    npm = shutil.which("npm")
    if npm is None:
        return unchecked("npm is not installed")
    stamp = CACHE / "installed"
    if not stamp.is_file() or stamp.read_text(encoding="utf-8").split() != list(PACKAGES):
        print("installing the JavaScript compiler (once) ...", file=sys.stderr)
        CACHE.mkdir(parents=True, exist_ok=True)
        (CACHE / "package.json").write_text("{}\n", encoding="utf-8")
        quiet = ["--no-save", "--no-audit", "--no-fund", "--loglevel=error"]
        subprocess.run([npm, "install", "--prefix", str(CACHE), *quiet, *PACKAGES], check=True, stdout=sys.stderr)
        stamp.write_text("\n".join(PACKAGES), encoding="utf-8")
    vendor = Path(spec.origin).parent / "_vendor" / "bridge"
    config = CACHE / "tsconfig.json"
    config.write_text(json.dumps(settings(vendor / "node_modules"), indent=1), encoding="utf-8")
    tsc = CACHE / "node_modules" / "typescript" / "bin" / "tsc"
    return subprocess.run(["node", str(tsc), "--project", str(config)], cwd=ROOT, check=False).returncode


def settings(modules: Path) -> dict[str, object]:
    return {
        "compilerOptions": {
            "allowJs": True,
            "checkJs": True,
            "noEmit": True,
            "strict": True,
            "noUnusedLocals": True,
            "target": "es2024",
            "lib": ["es2024", "esnext.disposable", "esnext.array", "esnext.iterator"],
            "module": "nodenext",
            "skipLibCheck": True,
            "types": ["node"],
            "typeRoots": [str(CACHE / "node_modules" / "@types")],
            "paths": {"@cursor/sdk": [str(modules / "@cursor" / "sdk" / "dist" / "esm" / "index.d.ts")]},
        },
        "include": [str(ROOT / pattern) for pattern in CHECKED],
    }


def unchecked(why: str) -> int:
    print(f"JavaScript was not type-checked: {why}.", file=sys.stderr)
    return 1 if os.environ.get("CI") else 0


if __name__ == "__main__":
    sys.exit(main())
