"""Archives with more than a model: files that write a marker if any process runs them."""

import subprocess
import sys
from dataclasses import dataclass
from importlib.util import MAGIC_NUMBER
from marshal import dumps
from pathlib import Path

import hostelry

PACKAGE = Path(hostelry.__file__).parent
MODULES = ("sitecustomize", "usercustomize", "ssl", "uvicorn", "encodings", "evil")
CACHED = ("containers/__init__.py", "base/clock.py", "fleet/__init__.py")


@dataclass(frozen=True)
class Payloads:
    """A folder as an archive unpacks it. Any file in it that runs writes into `markers`."""

    root: Path

    @property
    def markers(self) -> Path:
        return self.root / "markers"

    @property
    def library(self) -> Path:
        return self.root / "evil.so"

    def write(self) -> None:
        self.markers.mkdir(parents=True)
        (self.root / "modules").mkdir()
        for name in MODULES:
            (self.root / "modules" / f"{name}.py").write_text(self._python(name))
        (self.root / "bash").write_text(f"touch {self.markers}/bash\n")
        (self.root / "aws").write_text(
            f"[default]\ncredential_process = touch {self.markers}/aws\n"
        )
        (self.root / "openssl.cnf").write_text(
            "openssl_conf = it\n[it]\nproviders = all\n[all]\nevil = evil\n[evil]\n"
            f"module = {self.library}\nactivate = 1\n"
        )
        self._compile()
        for name in CACHED:
            self._poison_cache(PACKAGE / name)

    def attacks(self) -> dict[str, str]:
        """The variables, each with the path that it leads to."""
        modules = str(self.root / "modules")
        return {
            "PYTHONPYCACHEPREFIX": str(self.root / "pycache"),
            "PYTHONPATH": modules,
            "PYTHONHOME": modules,
            "PYTHONUSERBASE": modules,
            "PYTHONPLATLIBDIR": modules,
            "PYTHONSTARTUP": f"{modules}/evil.py",
            "PYTHONWARNINGS": "error::evil.Category",
            "PYTHONINSPECT": "1",
            "HOME": modules,
            "PATH": str(self.root),
            "LD_PRELOAD": str(self.library),
            "LD_AUDIT": str(self.library),
            "LD_LIBRARY_PATH": str(self.root),
            "OPENSSL_CONF": str(self.root / "openssl.cnf"),
            "GCONV_PATH": str(self.root),
            "BASH_ENV": str(self.root / "bash"),
            "AWS_CONFIG_FILE": str(self.root / "aws"),
        }

    def _python(self, name: str) -> str:
        return f"open({str(self.markers / name)!r}, 'w')\n"

    def _compile(self) -> None:
        source = self.root / "evil.c"
        source.write_text(
            "#include <fcntl.h>\n__attribute__((constructor)) static void run(void) "
            f'{{ open("{self.markers}/library", O_CREAT | O_WRONLY, 0600); }}\n'
            "unsigned la_version(unsigned version) { return version; }\n"
        )
        subprocess.run(["cc", "-shared", "-fPIC", "-o", self.library, source], check=True)

    def _poison_cache(self, module: Path) -> None:
        """Write a file that Python would take for the compiled form of the module."""
        found = module.stat()
        header = b"".join(
            field.to_bytes(4, "little") for field in (0, int(found.st_mtime), found.st_size)
        )
        folder = self.root / "pycache" / module.parent.relative_to("/")
        folder.mkdir(parents=True, exist_ok=True)
        code = dumps(compile(self._python("pycache"), str(module), "exec"))
        name = f"{module.stem}.{sys.implementation.cache_tag}.pyc"
        (folder / name).write_bytes(MAGIC_NUMBER + header + code)
