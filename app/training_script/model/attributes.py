"""Attributes of objects as the statements of one function set them, apart from what all objects of a class hold."""

from .function_steps import Summary
from .keys import DIFFERS
from .names import NameEvaluator
from .values import Attribute, Instance, Value

MOST_PATH = 1  # conditions around a statement that sets an attribute apart from its class for the first time


class AttributeEvaluator(NameEvaluator):
    """The attributes that one function sets. Branches and loops join them like its names."""

    def set_attribute_here(self, owner: Value, name: str, value: Value, before: Value | None) -> None:
        """Keep what an attribute holds from here on, with the names of the function."""
        if not isinstance(owner.obj, Instance):
            return
        self.sets.add(name)
        if len(self.path) > MOST_PATH and f"{id(owner.key)}.{name}" not in self.set_here:
            return  # the comparison of ranks would take each of the ways apart
        own = bool(self.parameters) and owner is self.env.get(self.parameters[0])
        if own or not (owner.obj.cls.is_made_often or len(owner.obj.cls.made_at) > 1):
            place = f"{id(owner.key)}.{name}"
            if place not in self.set_here:
                if before is None:
                    self.first_set.add(place)
                if before is None or (before.key is value.key and before.facts == value.facts):
                    return  # as all objects of the class hold it
                self.set_here[place] = Attribute(owner.obj, name, before)
            self.env[place] = value

    def set_any_attribute(self, owner: Value, given: Value) -> None:
        """Take for each plain attribute of an object that a value of some ranks may replace it, under its name."""
        path = self.path[-1]
        if not isinstance(owner.obj, Instance) or not (given.key.differs_by | path.differs_by) & DIFFERS:
            return
        for each in owner.obj.cls.ancestry():
            for name, held in each.attributes.items():
                if held.obj is None and not held.facts:
                    new = self.keys.make("item", given.key, self.keys.constant(name))
                    each.attributes[name] = Value(self.keys.either(path, new, held.key))
                    self.sets.add(name)
        self.shared.count_stores += 1

    def take_attributes(self, called: Summary, owner: Value | None) -> None:
        """Take for attributes that a call has set what it leaves in its object, else what all of a class hold."""
        for read, differs_by in called.reads.items():
            self.reads.setdefault(read, differs_by)
        if not called.sets:
            return
        self.sets |= called.sets
        for place, (instance, name, _) in self.set_here.items():
            if name not in called.sets or place not in self.env:
                continue
            known = called.settled.get(name) if owner and place == f"{id(owner.key)}.{name}" else None
            if held := known or self.attribute_of_instance(instance, name):
                self.env[place] = held

    def settle_attributes(self, method: str) -> None:
        """Keep what attributes hold where a method ends: those of its object, and those that no other method sets."""
        if not self.set_here or not all(condition is self.keys.true for condition, _ in self.returned):
            return
        own = self.env.get(self.parameters[0]) if self.parameters else None
        for place, (instance, name, _) in self.set_here.items():
            held = self.env.get(place)
            if held is None or own is None or place != f"{id(own.key)}.{name}":
                continue
            self.settled[name] = held
            known = instance.cls.attributes.get(name)
            if place not in self.first_set or known is None or known is held:
                continue
            if not any(each.is_set_by_others(name, method) for each in instance.cls.ancestry()):
                instance.cls.attributes[name] = held
