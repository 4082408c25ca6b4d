"""Define what one file exports to the others of its project."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Summary:
    """The exports of one file to the others of its project.

    Attributes:
        path: where the file is.
        imports: the modules it imports, absolute (`a.b`) or relative (`..b`).
        star_imports: those of them that it imports everything from.
        bound: the names bound at the top of the module.
        devices: those that a star import brings, and that are the current CUDA device or else the CPU.
        public: the names in its `__all__`.
        read: the names that the module reads, where it has star imports.
        attributes: the attributes that it may read, those of `self` as `self.x`.
        set_on_imports: the attributes that it sets on what it imports; an empty name is any attribute.
        numbered: the names and attributes of which it takes the number of a device.
        classes: the names of the base classes of every class.
        cuda_classes: the classes that define a method `cuda`, or have one by `__getattr__`.
        mixed_classes: those of them whose name another class has that does neither.
        to_classes: the other classes that define a method `to`.
        adds_cuda: whether a function becomes the `cuda` of an object or class that already exists.
        cuda_effects: whether a class has a `cuda` that may do more than move what the object holds.
        get_device: whether a function or method is called `get_device`, as a method of tensors is.
        late: the functions that set an environment variable of CUDA's driver after torch has been imported;
            an empty name for the module's own code.
        forks: the modules whose functions run in processes that it forks; see `forked_modules`.
        devices_mentioned: whether its code may use CUDA, or whatever device it gets.
        options: the command line's options, each with its type and its default; see `Names.options`.
        flags: attributes of objects that the module sets; true for those that only CUDA makes true.
        mixing: the classes of modules in which low precision meets float32, whatever they are given.
        stops_autocast: whether it switches autocast for CUDA off, or casts for it, in a part of its code.
        autocasts: what it has autocast for: `cuda`, `if flag` for CUDA by one, or `device` for another.
        low_precision: whether it makes or converts values in half precision or bfloat16, without autocast.
        low_flags: the flags that it does so for, by their last names.
        transforms: functions, each with a parameter that it transforms by Fourier, and its position.
        scripted: what TorchScript compiles of other files; see `TorchScript.imported`.
        device_places: names, attributes and keys whose values are passed on as devices.
        receivers: functions, each with a parameter that it passes on as a device, and its position.
        refusing: functions, each with a parameter that must not be the CPU, and its position.
        passed: functions, each with an argument that the module passes, by keyword or position, and its kind.
        passed_numbers: functions, each with an argument that may be a number, and what is passed.
        compared: functions, each with the position and the name of a parameter that it compares with an int.
        numbers: the variables of the module that are ints, and its functions that return one, as `f()`.
        pure: those of the functions that do nothing else.
        backends: attributes, keys and imported names whose values become backends of process groups.
        backend_receivers: functions, each with a parameter that becomes one, and its position.
        passed_backends: attributes that are called backends, each with a function and the place there.
        compared_backends: names that are compared with "nccl" or "gloo", each with the text.
        tried: modules that are imported, and functions that are called, where an error is caught.
        patched: functions of `torch.cuda`, and methods of tensors and modules, that it replaces, by name.
        cuda_extensions: the compiled modules that it builds with CUDA, and in no other way.
        configurations: the paths of configuration files that it names.
        configured: for a configuration file, the keys of CUDA devices, each with its line and value.
        namespaces: functions that return `torch.cuda` or the like by the type of a device.
        guarded: imported names that it uses, and only where CUDA is available.
        choices: variables of the module that it binds to the name of a library for CUDA, each with the name.
    """

    path: str
    imports: frozenset[str] = frozenset()
    star_imports: tuple[str, ...] = ()
    bound: frozenset[str] = frozenset()
    devices: frozenset[str] = frozenset()
    public: frozenset[str] = frozenset()
    read: frozenset[str] = frozenset()
    attributes: frozenset[str] = frozenset()
    set_on_imports: frozenset[str] = frozenset()
    numbered: frozenset[str] = frozenset()
    classes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    cuda_classes: frozenset[str] = frozenset()
    mixed_classes: frozenset[str] = frozenset()
    to_classes: frozenset[str] = frozenset()
    adds_cuda: bool = False
    cuda_effects: bool = False
    get_device: bool = False
    late: frozenset[str] = frozenset()
    forks: frozenset[str] = frozenset()
    devices_mentioned: bool = False
    options: frozenset[tuple[str, str, str]] = frozenset()
    flags: dict[str, bool] = field(default_factory=dict)
    low_precision: bool = False
    mixing: frozenset[str] = frozenset()
    stops_autocast: bool = False
    autocasts: frozenset[str] = frozenset()
    low_flags: frozenset[str] = frozenset()
    transforms: frozenset[tuple[str, tuple[str, int]]] = frozenset()
    scripted: frozenset[str] = frozenset()
    device_places: frozenset[str] = frozenset()
    receivers: frozenset[tuple[str, tuple[str, int]]] = frozenset()
    refusing: frozenset[tuple[str, tuple[str, int]]] = frozenset()
    passed: frozenset[tuple[str, tuple[int | str, str]]] = frozenset()
    passed_numbers: frozenset[tuple[str, tuple[int | str, str]]] = frozenset()
    compared: frozenset[tuple[str, tuple[int | str, str]]] = frozenset()
    numbers: frozenset[str] = frozenset()
    pure: frozenset[str] = frozenset()
    backends: frozenset[str] = frozenset()
    backend_receivers: frozenset[tuple[str, tuple[str, int]]] = frozenset()
    passed_backends: frozenset[tuple[str, tuple[str, int | str]]] = frozenset()
    compared_backends: frozenset[tuple[str, str]] = frozenset()
    tried: frozenset[str] = frozenset()
    patched: frozenset[str] = frozenset()
    cuda_extensions: frozenset[str] = frozenset()
    configurations: frozenset[str] = frozenset()
    configured: tuple[tuple[str, int, str], ...] = ()
    choices: frozenset[tuple[str, str]] = frozenset()
    namespaces: frozenset[str] = frozenset()
    guarded: frozenset[str] = frozenset()
