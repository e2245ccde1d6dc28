"""The rules that read the facts of a program (``training_script.model.reach``)."""

from collections.abc import Callable, Iterator

from ..training_script.model.reach import Run
from .rule_context import Script, Violation
from .rules import (
    accumulation,
    averages,
    checkpoints,
    collective_arguments,
    device_choice,
    early_reads,
    fsdp_order,
    gathered_gradients,
    gathered_shapes,
    gradient_scaling,
    kept_states,
    late_changes,
    loaders,
    lost_results,
    model_modes,
    partial_steps,
    process_group,
    process_values,
    repeated_side_effects,
    replicas,
    same_draws,
    samplers,
    settings_of_ranks,
    state_dicts,
    swallowed_errors,
    tensor_sizes,
    unshared_parts,
    unwrapped_forward,
    wrapped_attributes,
)

FactCheck = Callable[[Script, Run], Iterator[Violation]]
FACT_RULES: dict[str, FactCheck] = {
    "DW102": device_choice.check_selection,
    "DW104": device_choice.check_first_gpu,
    "DW105": process_group.check_rank,
    "DW113": process_values.check_address,
    "DW202": loaders.check_sampler,
    "DW203": samplers.check_epoch,
    "DW204": loaders.check_shuffle,
    "DW205": samplers.check_seed,
    "DW206": replicas.check_start,
    "DW208": unshared_parts.check_outside,
    "DW207": unwrapped_forward.check,
    "DW212": accumulation.check_missing,
    "DW213": accumulation.check_predicate,
    "DW216": replicas.check_unused,
    "DW218": wrapped_attributes.check,
    "DW219": state_dicts.check,
    "DW220": accumulation.check_share,
    "DW221": gradient_scaling.check,
    "DW224": model_modes.check_ready,
    "DW225": replicas.check_late_load,
    "DW226": replicas.check_schedule,
    "DW227": replicas.check_split,
    "DW228": late_changes.check,
    "DW229": partial_steps.check_some,
    "DW230": partial_steps.check_late,
    "DW231": unshared_parts.check_copy,
    "DW232": samplers.check_ranks,
    "DW233": settings_of_ranks.check_order,
    "DW235": averages.check_twice,
    "DW236": averages.check_labels,
    "DW237": settings_of_ranks.check_settings,
    "DW238": model_modes.check_mode,
    "DW239": model_modes.check_buffers,
    "DW240": partial_steps.check_clipped,
    "DW241": samplers.check_parts,
    "DW242": kept_states.check,
    "DW243": same_draws.check,
    "DW302": fsdp_order.check_optimizer,
    "DW303": fsdp_order.check_clip,
    "DW304": fsdp_order.check_checkpointing,
    "DW407": gathered_shapes.check,
    "DW409": process_group.check_end,
    "DW411": swallowed_errors.check,
    "DW412": repeated_side_effects.check,
    "DW414": process_values.check_hash,
    "DW415": collective_arguments.check_result,
    "DW416": collective_arguments.check_root,
    "DW417": collective_arguments.check_list,
    "DW418": collective_arguments.check_elements,
    "DW419": collective_arguments.check_receive,
    "DW420": gathered_gradients.check,
    "DW421": lost_results.check_temporary,
    "DW422": lost_results.check_none,
    "DW423": lost_results.check_type,
    "DW424": lost_results.check_splits,
    "DW425": tensor_sizes.check_size,
    "DW426": tensor_sizes.check_state,
    "DW501": checkpoints.check_race,
    "DW502": checkpoints.check_local_writer,
    "DW504": checkpoints.check_load,
    "DW505": early_reads.check_read,
}


def check_facts(script: Script) -> Iterator[tuple[str, Violation]]:
    """Yield what violates one of ``FACT_RULES``, each place once."""
    reported: set[tuple[str, int, int]] = set()
    for run in script.runs:
        for rule, check in FACT_RULES.items():
            for violation in check(script, run):
                key = rule, violation.line, violation.column
                if key not in reported:
                    reported.add(key)
                    yield rule, violation
