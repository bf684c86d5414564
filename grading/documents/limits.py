"""How much a submission may hold."""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True)
class Limits:
    """Bounds of one submission; what is above them is refused, only outputs are shortened (with a note)."""

    max_upload_bytes: int = 32 * MIB
    """All uploaded files together, and again all that is unpacked from them."""
    max_file_bytes: int = 10 * MIB
    max_data_bytes: int = 0
    """Data files together, which lie beside the work when it is run; 0: there are none."""
    max_files: int = 50
    """Readable files after unpacking."""
    max_entries: int = 1000
    """Entries of zip files, those that are left out and those of nested zips included."""
    max_ratio: int = 100
    """Unpacked bytes for one packed byte; small files (below 1 MiB unpacked) are not measured."""
    max_depth: int = 2
    """Zips in zips: 1 is a plain zip, 2 allows a zip inside it."""
    max_name_chars: int = 200
    max_cells: int = 2000
    """Cells of one document."""
    max_cell_chars: int = 400_000
    max_output_chars: int = 20_000
    """Text outputs of one cell, together."""
    max_json_values: int = 2_000_000
    """Commas and opening brackets of one notebook, which bound the memory its JSON takes."""
