"""Which part of which document comes from which table."""

from __future__ import annotations

import re

from . import calibration, forecasting, own_file, performance, reproduction, searches, stress

DOCUMENTS = (
    *("README.md", "docs/reproduction.md", "docs/results.md", "docs/performance.md"),
    *("docs/tutorials/own_file.md", "docs/reliability.md", "docs/scaling.md", "docs/scaling_one_fit.md"),
    "docs/howto/wide_series.md",
)
PARTS = {
    "overview": reproduction.overview_table,
    "scores": reproduction.score_table,
    "wilcoxon": reproduction.wilcoxon_tables,
    "bars": reproduction.bar_table,
    "sgp_bars": reproduction.sgp_bar_table,
    "cost": reproduction.cost,
    "worse": reproduction.worse_lists,
    "sources": reproduction.source_list,
    "joint": reproduction.joint_table,
    "differences": reproduction.difference_table,
    "paper_settings": reproduction.paper_settings_table,
    "levers": searches.lever_table,
    "structured": searches.structured_table,
    "beijing": forecasting.beijing_table,
    "beijing_after": forecasting.beijing_after_table,
    "forecasts": forecasting.default_table,
    "wide": forecasting.wide_table,
    "recovery": forecasting.recovery_table,
    "coverage": forecasting.coverage_table,
    "iterations": forecasting.iterations_table,
    "short_coverage": forecasting.short_coverage_table,
    "irregular": forecasting.irregular_table,
    "latent": forecasting.latent_table,
    "speed": performance.speed_table,
    "blocks": performance.blocks_table,
    "growth": performance.growth_table,
    "growth_memory": performance.growth_memory_table,
    "first_use": performance.first_use_table,
    "waiting": performance.waiting_table,
    "update_latency": performance.latency_table,
    "together": performance.together_table,
    "many_devices": performance.devices_table,
    "streaming": performance.streaming_table,
    "projection": performance.projection_table,
    "calibration": calibration.calibration_table,
    "uci_members": calibration.member_table,
    "uci_flows": calibration.flow_table,
    "drift_posterior": calibration.drift_table,
    "checks": performance.checks_table,
    "race": performance.race_table,
    "gpu": performance.gpu_tables,
    "speed_sources": performance.source_list,
    "promises": stress.promise_table,
    "stress": stress.stress_table,
    **own_file.PARTS,
}


def rendered(text: str) -> str:
    """A document with its marked parts made anew."""
    for name, make in PARTS.items():
        pattern = re.compile(rf"(<!-- results:{name} -->\n).*?(\n?<!-- /results:{name} -->)", re.S)
        if pattern.search(text):
            table = make()
            text = pattern.sub(lambda m, table=table: m.group(1) + table + "\n" + m.group(2).lstrip("\n"), text)
    return text
