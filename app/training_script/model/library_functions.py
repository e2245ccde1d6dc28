"""Functions of libraries, and calls that cannot be followed: what they return."""

import ast
import builtins
import re
import sys

from msgspec.structs import replace

from .. import rank_names
from .amounts import holds_data, lengthwise
from .collective_effects import SAME
from .evaluator_state import Named, Values
from .followed import is_followed
from .iterables import MAKES_NAMES, MAPPING, UNORDERED_FACT
from .keys import BY_RANK, CLOCK, LAUNCHED, LOCAL, RANKS, TOUCHED, Key, entry, parts
from .length_differences import differ, is_even
from .lengths import FORWARD, LISTS, PUBLIC, WORKER, length, number
from .library_calls import (
    BUFFERS,
    ENDLESS,
    FUNCTIONS,
    LISTED,
    LISTINGS,
    LOCAL_RESULTS,
    NUMBERS,
    OF_FILE,
    PARSES,
    SELECTED,
    SELECTIONS,
    SERIALIZES,
    TIMES,
    TRANSPARENT,
    UNIQUE,
)
from .library_collectives import METRIC, METRICS
from .log_levels import GET_LOGGER, SETS_ROOT
from .members import PAIR
from .module_api import PRETRAINED
from .names import CARRIED, POOLED
from .noted_calls import MEETING_POINT
from .random_numbers import RandomEvaluator
from .shown_times import COARSE, shows_coarsely
from .tensor_kinds import MADE, SAME_SHAPE, SIZED, shape_after, shape_of
from .values import NO_FACTS, Generated, Instance, Library, Mapped, Record, Value, is_elements

KNOWN_MODULES = {*sys.stdlib_module_names, "torch", "numpy", "tqdm", "wandb", "yaml", "tensorboardX"}
NAMESPACES = {"argparse.Namespace", "types.SimpleNamespace"}
AS_MAPPING = {"vars", "dataclasses.asdict"}
SUBGROUPS = {"torch.distributed.new_subgroups", "torch.distributed.new_subgroups_by_enumeration"}
OF_SUBGROUP = frozenset({"group", "members", "own"})
MAPPINGS = {"dict", "collections.Counter", "collections.defaultdict", "collections.OrderedDict"}
WORKER_INFO = {"torch.utils.data.get_worker_info", "torch.utils.data._utils.worker.get_worker_info"}
QUEUES = {"queue.Queue", "queue.SimpleQueue", "multiprocessing.Queue", "torch.multiprocessing.Queue"}
# Arrays of which the length follows from what they are given, and numbers that follow from others.
COPIES, UNWRAPPED = {"copy.deepcopy"}, frozenset({"unwrapped"})
COUNTED = {"numpy.arange", "numpy.random.permutation", "numpy.array_split", "math.ceil", "math.floor"}
LOADS = {"json.load", "pickle.load", "numpy.load", "yaml.safe_load", "safetensors.torch.load_file"}
READS = ("pandas.read_", "numpy.loadtxt", "numpy.genfromtxt", "numpy.memmap", "datasets.load_from_disk")
WRAPPED = {"ddp", "engine", "apex"}
DIVIDED = 3  # the stage of ZeRO that divides the parameters as well
MAKES_MODEL = {"from_pretrained", "from_config"}
MODEL_CLASS = re.compile(r"Model(?:For\w*)?\.|For[A-Z]\w*\.|HeadModel\.")
ROW_BY_ROW = {*SAME_SHAPE, "Linear", "Flatten", "BatchNorm1d", "BatchNorm2d", "Conv1d", "Conv2d", "Embedding"}
OF_TYPE = "is instance"  # whether an object is of a type
KNOWN_METHODS = re.compile(
    r"add_argument|add_scalar|append|close|copy|cpu|critical|cuda|debug|detach|error|eval|exception|extend|float|flush"
    r"|format|get|info|int|items?|join|keys|log|numpy|open|pop|print|put|read|split|startswith|strip|to|values|warn(?:ing)?"
    r"|write|zero_grad|set_postfix|set_description|add_scalars|update"
)
BUILTINS = frozenset(dir(builtins))
OF_STORAGE = {"device", "requires_grad", "pin_memory"}  # what a new tensor is given beyond its values


class FunctionOfLibraryEvaluator(RandomEvaluator):
    """Calls of functions that the program does not define."""

    def _library(self, name: str, callee: Value, node: ast.Call, values: Values, named: Named) -> Value:
        last = name.rpartition(".")[2]
        if name in FUNCTIONS:
            return self.effect(FUNCTIONS[name], node, values, named, None)
        if last[:1].isupper() and name.startswith(f"{METRICS}.") and not _is_of_one_rank(named):
            return self.effect(METRIC, node, values, named, None)
        if rank := self.rank_of_library(name, values, named):
            return rank
        if name in ("os.getenv", "os.environ.get") and values and values[0].key.is_constant:
            variable = values[0].key.value
            found = (
                self.variable(variable, Value(callee.key, obj=Library("os.environ")))
                if isinstance(variable, str)
                else None
            )
            if variable in MEETING_POINT:
                return Value(self.keys.make(LAUNCHED, variable))
            default = values[1] if len(values) > 1 else named.get("default")
            read = self.unknown(node)
            if found or default is None or not default.key.is_constant:
                return found or read
            return Value(self.keys.make("attribute", read.key, variable, default.key))
        if name in WORKER_INFO:
            return Value(self.keys.make(WORKER, *self.place(node)))
        if name.startswith("transformers.") and last in MAKES_MODEL and MODEL_CLASS.search(name):
            return self.unknown(node, facts=frozenset({PRETRAINED}))
        if name == "deepspeed.initialize":
            engine = Value(self.keys.make("at", *self.place(node)), _facts_of_engine(named))
            optimizer = Value(self.unknown(node).key, frozenset({"engine_optimizer"}))
            return Value(engine.key, obj=(engine, optimizer, self.unknown(node), self.unknown(node)))
        if name in SUBGROUPS:
            own = Value(self.keys.make("at", *self.place(node)), OF_SUBGROUP)
            return Value(own.key, obj=(own, self.unknown(node)))
        if name in NAMESPACES and not values:
            return Value(self.keys.make("at", *self.place(node)), obj=Record(named))
        if name == "dict" and named and not values and "**" not in named:
            return self.mapping(named)
        if name in AS_MAPPING and values and (fields := self.fields_of(values[0], node)) is not None:
            return self.mapping(fields)
        if name in BUFFERS and values:
            return self.unknown(node, *values)  # to read what it is made of
        if random := self.drawn(name, node, values, named):
            return random
        if name in LOCAL_RESULTS:
            return Value(self.keys.local(LOCAL_RESULTS[name], *self.place(node)))
        if name in QUEUES:
            queue = Value(self.keys.make("at", *self.place(node)), frozenset({"queue"}))
            self.shared.queued.pop(queue.key, None)
            return queue
        if name in LISTINGS and values and values[0].key.differs_by & BY_RANK:
            return Value(self.keys.local(LISTED, *self.place(node)))
        if name == "pathlib.Path" and values:
            return self._computed(name, values)
        if name == "hash":
            return self.unknown(node, *values)
        if name in TIMES:
            if shows_coarsely(last, values):
                return Value(self.keys.make(COARSE, values[0].key))
            return Value(self.keys.make(CLOCK, *self.place(node), differs_by=TOUCHED))
        if last in UNIQUE:
            return Value(self.keys.local(last, *self.place(node)))
        if name in ("os.path.exists", "os.path.isfile", "os.path.isdir") and values:
            return self._exists(name, values[0], node)
        if name in NUMBERS and values and values[0].key.op in LISTS:
            return Value(self.keys.make("call", name, values[0].key), values[0].facts & CARRIED)
        if name in SERIALIZES and values:
            return Value(self.keys.make("call", name, values[0].key), values[0].facts & CARRIED)
        if name in PARSES and values and values[0].key.op == "call" and values[0].key.args[0] == PARSES[name]:
            return Value(values[0].key.args[1], values[0].facts & CARRIED)
        if name in TRANSPARENT and values and name != "sorted":
            is_object = isinstance(values[0].obj, Instance)
            if name in COPIES and "unwrapped" in values[0].facts:
                return replace(values[0], facts=values[0].facts - UNWRAPPED)  # a model of its own
            return replace(values[0], obj=None) if is_object and (name == "str" or name in NUMBERS) else values[0]
        if last == "trange":
            return Value(self.keys.make("range", *(value.key for value in values)))
        if (name in SELECTIONS or (name == "torch.where" and len(values) + len(named) == 1)) and values:
            return self.selected(values[0], node, in_parts=name == "torch.where" or "as_tuple" in named)
        if name in ("torch.chunk", "torch.tensor_split", "torch.split") and len(values) > 1:
            dim = named.get("dim") or (values[2] if len(values) > 2 else None)
            if name != "torch.split":
                return self.pieces(values[0], values[1], node, dim, equal=name == "torch.chunk")
            if pieces := self.pieces_of_size(values[0], values[1], node, dim):
                return pieces
        if name == "torch.numel" and values:
            return self.extent(values[0], node)
        if name in ("len", "range", "min", "max", "sum", "divmod", "pow"):
            if values and values[0].key.op == "if" and name == "len":
                self.note_none(node, node.args[0], values[0])
            if name == "len" and values and is_elements(values[0].obj):
                return self.constant(len(values[0].obj))
            if name == "len" and values and isinstance(values[0].obj, Instance):
                return self.length_of(values[0], node)
            if name == "len" and values and values[0].key.op == "selected":
                return Value(self.keys.local(SELECTED, *self.place(node)))
            facts = frozenset[str]().union(*(value.facts for value in values)) & CARRIED
            if name != "len" or not values:
                return Value(self.keys.make(name, *(value.key for value in values)), facts)
            counted = lengthwise(self.keys, values[0].key)
            if counted.differs_by & LOCAL:
                return self._length(counted, node)
            size = self.keys.make("length", counted)
            if counted.differs_by & BY_RANK and number(size, PAIR[0]) is None and is_even(size):
                return self.unknown(node)
            return Value(size, facts)
        if (
            name == "getattr"
            and len(values) > 1
            and isinstance(values[1].key.value if values[1].key.is_constant else None, str)
        ):
            return self.attribute(values[0], values[1].key.args[0], node)
        if name == "slice" and 0 < len(values) < 4:
            bounds = [None, values[0]] if len(values) == 1 else values
            keys = [each.key if each else self.keys.none for each in (*bounds, None)]
            return Value(self.keys.make("slice", *keys[:3]))
        if name == GET_LOGGER:
            return Value(self.shared.log_levels.logger(values[0].key if values else self.keys.none))
        if name == SETS_ROOT and (level := named.get("level")):
            self.shared.log_levels.store(None, level.key, self.path[-1])
        if name == "setattr" and len(values) == 3 and len(node.args) == 3:
            named_by = values[1].key
            if named_by.is_constant and isinstance(named_by.value, str):
                self.bind(ast.copy_location(ast.Attribute(node.args[0], named_by.value, ast.Store()), node), values[2])
            else:
                self.set_any_attribute(values[0], values[2])
            return self.constant(None)
        if name == "hasattr" and len(values) > 1 and values[1].key is self.keys.constant("module"):
            return self.constant(True) if values[0].facts & WRAPPED else self.unknown(node)
        if name == "hasattr" and values and values[0].key.differs_by & LOCAL:
            return self.unknown(node)  # data have the same attributes on every rank
        if name == "isinstance" and len(values) > 1:
            if "ddp" in values[0].facts and self.qualified(values[1]).endswith("DistributedDataParallel"):
                return self.constant(True)
            return Value(self.keys.make(OF_TYPE, *self.place(node)))  # data have the same type on every rank
        if name in ("set", "frozenset", "collections.Counter") and values and holds_data(values[0].key):
            return Value(self.distinct(node), UNORDERED_FACT if name != "collections.Counter" else MAPPING)
        if name in ("set", "frozenset"):
            return self.unknown(node, *values, facts=UNORDERED_FACT)
        if name in MAPPINGS:
            facts = MAPPING | MAKES_NAMES if name == "collections.defaultdict" else MAPPING
            made = replace(self._opaque(callee, node, values, named), facts=facts)
            return self._of_factory(made, values[0], node) if name == "collections.defaultdict" and values else made
        if name == "sorted" and values:
            return self.ordered(replace(values[0], facts=values[0].facts - UNORDERED_FACT), node, named)
        if name == "enumerate" and values and "unordered" in values[0].facts:
            self.note_order(node, values[0])
        if name == "enumerate" and values:
            start = named.get("start") or (values[1] if len(values) > 1 else None)
            begins = (start.key,) if start and start.key is not self.keys.constant(0) else ()
            return Value(self.keys.make("enumerate", values[0].key, *begins), obj=(values[0],))
        if name == "next" and values and isinstance(values[0].obj, Generated):
            return self.unknown(node)  # by hand, and mostly without an end
        if name == "next" and values:
            element = self.element(values[0], node.args[0])
            ends = len(values) > 1 and values[1].key is self.keys.none and element.obj is None
            return replace(element, key=self._next(element.key, values[0], node)) if ends else element
        if name == "itertools.islice" and 1 < len(values) < 5:
            none = self.keys.none
            bounds = [each.key for each in values[1:]] if len(values) > 2 else [none, values[1].key]
            key = self.keys.make("slice", *[*bounds, none][:3])
            return Value(self.keys.make("item", values[0].key, key), values[0].facts & CARRIED)
        if name.endswith("split_dataset_by_node") and values:
            part = self.part_of_rank(values[0], values[1:], named, ("rank", "world_size"))
            return part or self.unknown(node, *values)
        if name == ENDLESS and values:
            return self._computed(name, values)
        if name == "zip" and values:
            return Value(self.keys.make("zip", *(value.key for value in values)), obj=tuple(values))
        if last == "join" and isinstance(callee.obj, Library):
            return self._computed(name, values)
        if not name.startswith(("torch.", "numpy.", "math.")) or name.startswith("torch.distributed"):
            known = self.by_name(last, called=True) if not values and not named else None
            if known:
                return known
        if name.startswith(("torch.cuda.", "torch.distributed.")) and rank_names.is_distributed_flag(last):
            return self.constant(True)
        if name in LOADS and values:
            return self._loaded(node, values[0])
        if (name in COUNTED or name.startswith(PUBLIC)) and values:
            return self._computed(name, values)
        if (name == "open" or name.startswith(READS)) and values:
            return self.content(self._opaque(callee, node, values, named), values[0].key)
        if name.startswith("torch."):
            made = name.removeprefix("torch.") in MADE
            given = [*values, *(each for word, each in named.items() if not made or word not in OF_STORAGE)]
            if name in ("torch.matmul", "torch.mm") and len(given) == 2:
                return across(given[0], given[1], self._computed(name, given))
            if name == "torch.roll" and any(each.key.differs_by & BY_RANK for each in given[1:]):
                given[0] = replace(given[0], facts=given[0].facts - POOLED)
            if given or (name.startswith("torch.nn.") and (last.endswith("Loss") or last in SAME_SHAPE)):
                return self._computed(name, given)
            return self.unknown(node)
        return self._opaque(callee, node, values, named)

    def part_of_rank(self, whole: Value, values: Values, named: Named, words: tuple[str, str]) -> Value | None:
        """Return every n-th sample of a data set of the library datasets, n and the first given by these words."""
        given = [*values[: len(words)], *(named[word] for word in words if word in named)]
        numbers = [each.key for each in given]
        first = next((each for each in numbers if each.differs_by & BY_RANK), None)
        step = next((each for each in numbers if each.op == "world"), None)
        if first is None or step is None:
            return None
        key = self.keys.make("slice", first, self.keys.none, step)
        return Value(self.keys.make("item", whole.key, key), whole.facts & CARRIED)

    def _of_factory(self, mapping: Value, factory: Value, node: ast.Call) -> Value:
        """Return a mapping with the object of the program that a factory makes for each name."""
        if not is_followed(factory.obj) or is_elements(factory.obj):
            return mapping
        call = ast.copy_location(ast.Call(node.args[0], [], []), node)
        element = self._invoked(factory, call, [], {})
        return replace(mapping, obj=Mapped(element)) if isinstance(element.obj, Instance) else mapping

    def _next(self, element: Key, iterated: Value, node: ast.Call) -> Key:
        """Return an element of an iterator, or None behind the last one."""
        return self.keys.make("next", element, self.keys.make("left", self.count(iterated, node.args[0])))

    def _opaque(self, callee: Value, node: ast.Call, values: Values, named: Named) -> Value:
        """Return the result of a call that cannot be followed: the rank in its arguments is not in the result."""
        if self._is_harmless(callee, node):
            result = self.unknown(node, callee, *values, *named.values())
            if len(values) != 1:
                return result
            sized, by_row = self._sized(result, callee, values[0], node), _is_row_by_row(callee.key)
            if by_row and values[0].key is not sized.key:
                sized.key.rows_of = values[0].key
            if sized is result and by_row and differ(values[0].key, length):
                return replace(result, key=self.keys.make("rows", values[0].key, FORWARD))
            return sized
        self.unknown_calls += 1
        result = self.unknown(node, callee, *values, *named.values())
        if result.facts:
            result = replace(result, facts=result.facts - UNORDERED_FACT)  # what it makes of a set is not known
        own = isinstance(node.func, ast.Attribute) or callee.key.op == "call"
        foreign = result.key.differs_by & LOCAL and not own
        return replace(result, facts=result.facts | {"foreign"}) if foreign else result

    def _sized(self, result: Value, module: Value, given: Value, node: ast.Call) -> Value:
        """Return what a module of torch gives for a tensor, with its shape if that is known."""
        shapes = [shape_after(module.key, shape_of(given.key, self.keys, rank), rank) for rank in RANKS[:2]]
        first, second = shapes
        if first is None or second is None or len(first) != len(second):
            return result
        of_first = self.keys.is_first("global")
        pairs = zip(map(self.keys.constant, first), map(self.keys.constant, second), strict=True)
        sizes = self.keys.make("sequence", *(self.keys.either(of_first, *pair) for pair in pairs))
        return replace(result, key=self.keys.make(SIZED, *self.place(node), sizes, differs_by=result.key.differs_by))

    def is_harmless_call(self, node: ast.Call) -> bool:
        """Return whether a call that is written out surely makes no collective."""
        return self._is_harmless(self.evaluate(node.func), node)

    def _is_harmless(self, callee: Value, node: ast.Call) -> bool:
        """Return whether a call surely makes no collective."""
        if callee.key.op == "call" and str(callee.key.args[0]).startswith("torch.nn."):
            return True
        if name := self.qualified(callee):
            return name.partition(".")[0] in KNOWN_MODULES or name in BUILTINS
        if isinstance(node.func, ast.Name):
            return node.func.id in BUILTINS
        return isinstance(node.func, ast.Attribute) and bool(KNOWN_METHODS.fullmatch(node.func.attr))

    def _computed(self, name: str, values: list[Value], facts: frozenset[str] = NO_FACTS) -> Value:
        carried = frozenset[str]().union(*(value.facts for value in values)) & CARRIED if values else NO_FACTS
        return Value(self.keys.make("call", name, *(value.key for value in values)), facts | carried)

    def _exists(self, name: str, path: Value, node: ast.AST) -> Value:
        """Return whether a file exists: data of one rank if the module itself writes it."""
        written = self.module.parsed.written
        if written and any(part.is_constant and part.value in written for part in parts(path.key)):
            return Value(self.keys.local(OF_FILE, *self.place(node), path.key))
        return self._computed(name, [path])

    def selected(self, owner: Value, node: ast.AST, *, in_parts: bool = False) -> Value:
        """Return the elements of a tensor that fulfil a condition: their number is data of one rank.

        ``in_parts``: their places, one tensor for each dimension.
        """
        if owner.key.is_constant or owner.key.op in SAME:
            return self.unknown(node, owner)
        found = Value(self.keys.make("selected", owner.key, *self.place(node)), owner.facts & CARRIED)
        return replace(found, obj=Generated(found)) if in_parts else found


def _is_of_one_rank(named: Named) -> bool:
    """Return whether a metric is made so that its computation asks no other rank."""
    sync = named.get("sync_on_compute")
    return sync is not None and sync.key.is_constant and sync.key.value is False


def _is_row_by_row(module: Key) -> bool:
    """Return whether a module of torch gives one row for each that it gets."""
    if module.op != "call":
        return False
    name = str(module.args[0]).removeprefix("torch.nn.")
    return name in ROW_BY_ROW or (name == "Sequential" and all(map(_is_row_by_row, module.args[1:])))


def _facts_of_engine(named: Named) -> frozenset[str]:
    """Return the roles of an engine of DeepSpeed, by its configuration if that is written out."""
    config = named.get("config") or named.get("config_params")
    zero = entry(config.key, "zero_optimization") if config else None
    stage = entry(zero, "stage") if zero else None
    divided = stage is not None and stage.is_constant and stage.value == DIVIDED
    return frozenset({"engine", "divided_engine"}) if divided else frozenset({"engine"})


def across(left: Value, right: Value, product: Value) -> Value:
    """Return a product of matrices, with whether it is of the rows of this rank and those of all."""
    facts = product.facts - {"pooled", "across"}
    if "pooled" in right.facts:
        facts |= {"pooled"} if "pooled" in left.facts else {"across"}
    return replace(product, facts=facts)
