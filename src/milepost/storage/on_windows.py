"""What `LocalStorage` asks of Windows. On other systems there is nothing in this file.

Windows renames or removes an open file only if all programs that have it open allow that (``FILE_SHARE_DELETE``), which
Python's ``open`` and ``os.open`` do not. So files are opened by ``CreateFileW``:

- A file that milepost writes or reads can be renamed and removed meanwhile.
- No locks are needed to find out whether a living process writes a file. Opening the file without allowing writers fails
  with ``ERROR_SHARING_VIOLATION``, from the moment in which the file is created.
- A file that another program has open, or that is mapped, can be neither replaced nor removed. Most programs have it open
  only for a moment (a virus scanner, a reader of the state file), so milepost tries again for two seconds.
- A directory cannot be synced. Renames are written through (``MOVEFILE_WRITE_THROUGH``).

Source: Microsoft's reference of the Win32 API, "CreateFileW function" and "MoveFileExW function".
"""

from __future__ import annotations

import sys

if sys.platform == "win32":
    import ctypes
    import errno
    import msvcrt
    import os
    from ctypes import wintypes
    from typing import Final

    from milepost.storage.patience import patiently

    NOTHING_THERE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL)
    """Error numbers for a path that does not exist. A name that Windows does not allow gives ``EINVAL``."""
    REMEDY_FOR_ACCESS: Final = (
        "close the file in the program that has it open, since Windows does not replace or remove an open file; or change "
        "the permissions of the file or of its directory"
    )

    _GENERIC_READ: Final = 0x80000000
    _GENERIC_WRITE: Final = 0x40000000
    _SHARE_READ: Final = 0x1
    _SHARE_WRITE: Final = 0x2
    _SHARE_DELETE: Final = 0x4
    _CREATE_NEW: Final = 1
    _OPEN_EXISTING: Final = 3
    _ATTRIBUTE_NORMAL: Final = 0x80
    _INVALID_HANDLE: Final = ctypes.c_void_p(-1).value
    _ERROR_SHARING_VIOLATION: Final = 32
    _REPLACE_EXISTING: Final = 0x1
    _WRITE_THROUGH: Final = 0x8

    _kernel: Final = ctypes.WinDLL("kernel32", use_last_error=True)
    _create_file: Final = _kernel.CreateFileW
    _create_file.argtypes = (
        wintypes.LPCWSTR,
        wintypes.DWORD,
        wintypes.DWORD,
        wintypes.LPVOID,
        wintypes.DWORD,
        wintypes.DWORD,
        wintypes.HANDLE,
    )
    _create_file.restype = wintypes.HANDLE
    _close_handle: Final = _kernel.CloseHandle
    _close_handle.argtypes = (wintypes.HANDLE,)
    _close_handle.restype = wintypes.BOOL
    _move_file: Final = _kernel.MoveFileExW
    _move_file.argtypes = (wintypes.LPCWSTR, wintypes.LPCWSTR, wintypes.DWORD)
    _move_file.restype = wintypes.BOOL

    def open_to_read(place: str, opened: list[int]) -> None:
        """Opens an existing file, which may be renamed and removed while it is open, and adds its descriptor to a list."""
        try:
            handle = _open(place, _GENERIC_READ, _SHARE_READ | _SHARE_WRITE | _SHARE_DELETE, _OPEN_EXISTING)
        except PermissionError:
            _refuse_directory(place)
            raise
        opened.append(_descriptor(handle, os.O_RDONLY))

    def create(place: str, opened: list[int]) -> None:
        """Creates a file for writing, which `is_in_use` until it is closed, and adds its descriptor to a list."""
        access, share = _GENERIC_READ | _GENERIC_WRITE, _SHARE_READ | _SHARE_WRITE | _SHARE_DELETE
        try:
            handle = _open(place, access, share, _CREATE_NEW)
        except FileNotFoundError:
            if os.path.isfile(os.path.dirname(place)):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), place) from None
            raise
        opened.append(_descriptor(handle, os.O_RDWR))

    def give_up(descriptor: int) -> None:
        """Ends the use of a file that `create` has made. Closing is enough, because no child process inherits it."""

    def is_in_use(place: str) -> bool:
        """Whether a living process has the file open from `create`. True if the system cannot tell."""
        try:
            handle = _open(place, _GENERIC_READ, _SHARE_READ | _SHARE_DELETE, _OPEN_EXISTING)
        except OSError as error:
            return error.winerror == _ERROR_SHARING_VIOLATION or error.errno not in NOTHING_THERE
        _close_handle(handle)
        return False

    def replace(source: str, target: str) -> None:
        """Renames a file over another, which no program may have open. Tries for two seconds."""
        if os.path.isdir(target):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), target)

        def move() -> None:
            if not _move_file(source, target, _REPLACE_EXISTING | _WRITE_THROUGH):
                raise _last_error(source)

        patiently(move)

    def link(source: str, target: str) -> None:
        """Gives a file a second name, once its data is on the disk. A symbolic link is refused."""
        if os.path.islink(source):
            raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP), source)
        _refuse_directory(source)
        # only a handle that may write can be synced
        share = _SHARE_READ | _SHARE_WRITE | _SHARE_DELETE
        descriptor = _descriptor(_open(source, _GENERIC_READ | _GENERIC_WRITE, share, _OPEN_EXISTING), os.O_RDWR)
        try:
            sync(descriptor)
        finally:
            os.close(descriptor)
        os.link(source, target)

    def remove(place: str) -> None:
        """Removes a file, which no other program may have open. Tries for two seconds."""
        _refuse_directory(place)
        patiently(lambda: os.unlink(place))

    def begin_sync(descriptor: int) -> None:
        """Does nothing: Windows itself decides when it begins to write a file to the disk."""

    def sync(descriptor: int) -> None:
        """Returns when the data of a file is on the disk."""
        os.fsync(descriptor)

    def sync_directory(place: str) -> None:
        """Checks that the directory exists. Windows cannot sync it."""
        with os.scandir(place):
            pass

    def _open(place: str, access: int, share: int, disposition: int) -> int:
        handle: int | None = _create_file(place, access, share, None, disposition, _ATTRIBUTE_NORMAL, None)
        if handle is None or handle == _INVALID_HANDLE:
            raise _last_error(place)
        return handle

    def _descriptor(handle: int, flags: int) -> int:
        try:
            return msvcrt.open_osfhandle(handle, flags | os.O_BINARY | os.O_NOINHERIT)
        except OSError:
            _close_handle(handle)
            raise

    def _last_error(place: str) -> OSError:
        code = ctypes.get_last_error()
        return OSError(None, ctypes.FormatError(code), place, code)

    def _refuse_directory(place: str) -> None:
        """Raises the right error for a directory, for which Windows reports a missing permission."""
        if os.path.isdir(place):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), place)
