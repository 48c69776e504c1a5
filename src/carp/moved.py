"""Where modules of version 0.1 are now, for those who import them by their old names."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

SINCE = "0.2.0"
MODULES = {  # below carp: before, and now
    "archive": "training.fitted_corpus",
    "bench.corpora": "bench.datasets",
    "bench.findings": "bench.study_findings",
    "bench.notes": "bench.table_notes",
    "bench.page": "bench.report_page",
    "bench.published": "bench.published_figures",
    "bench.results": "bench.results_folder",
    "bench.rows": "bench.table_rows",
    "bench.search": "bench.settings_search",
    "bench.workers": "bench.cell_processes",
    "bundle": "persist.bundle",
    "capsules": "explain.capsule_reasons",
    "checkpoint": "training.checkpoint",
    "choosing": "explain.selection",
    "commands": "cli",
    "demo": "cli.demo",
    "doctor": "cli.doctor",
    "evaluation": "evaluate.evaluation",
    "evidence": "explain.phrases",
    "faithfulness": "explain.faithfulness",
    "kernels.documents_cpu": "kernels.cpu.encode_all",
    "kernels.encode_cpu": "kernels.cpu.viewpoints",
    "kernels.encode_native": "kernels.cpu.viewpoints_c",
    "kernels.gpu_check": "kernels.gpu.self_check",
    "kernels.gpu_corpus": "kernels.gpu.device_corpus",
    "kernels.gpu_encode": "kernels.gpu.encoder",
    "kernels.gpu_layout": "kernels.gpu.parameter_layout",
    "kernels.gpu_room": "kernels.gpu.workspace",
    "kernels.gpu_score": "kernels.gpu.scorer",
    "kernels.gpu_step": "kernels.gpu.training_step",
    "kernels.gpu_support": "kernels.gpu.availability",
    "kernels.gpu_train": "kernels.gpu.gpu_trainer",
    "kernels.judge_cpu": "kernels.cpu.balances_c",
    "kernels.native": "kernels.cpu.compiler",
    "kernels.optimizer_native": "kernels.cpu.rmsprop_c",
    "kernels.pair_cpu": "kernels.cpu.pair_gradients",
    "kernels.ragged": "kernels.cpu.ragged",
    "kernels.score_cpu": "kernels.cpu.pair_scores",
    "kernels.step_native": "kernels.cpu.step_c",
    "kernels.step_torch": "kernels.cpu.step_torch",
    "kernels.steps_cpu": "kernels.cpu.step_plan",
    "kernels.top": "kernels.best_items",
    "kernels.train_cpu": "kernels.cpu.cpu_trainer",
    "kernels.triton_back": "kernels.gpu.triton_encode_back",
    "kernels.triton_capsules": "kernels.gpu.triton_capsules",
    "kernels.triton_pair": "kernels.gpu.triton_pair",
    "kernels.triton_places": "kernels.gpu.triton_places",
    "kernels.triton_read": "kernels.gpu.triton_encode",
    "kernels.triton_score": "kernels.gpu.triton_score",
    "kernels.triton_update": "kernels.gpu.triton_update",
    "kernels.words_cpu": "kernels.cpu.word_convolution",
    "kernels.words_native": "kernels.cpu.word_convolution_c",
    "kernels.workers": "kernels.cpu.threads",
    "metrics": "evaluate.metrics",
    "planted": "explain.faithfulness.planted_causes",
    "profile": "explain.profiles",
    "pulls": "explain.influence",
    "questions": "explain.question",
    "reasons": "explain.explainer",
    "render.faithfulness": "render.faithfulness_text",
    "render.json": "render.explanation_json",
    "render.listening": "render.attention_section",
    "render.markup": "render.html_templates",
    "render.meeting": "render.capsule_section",
    "render.page": "render.html_page",
    "render.profile": "render.profile_views",
    "render.progress": "render.progress_bar",
    "render.tables": "render.console_tables",
    "render.text": "render.terminal",
    "render.words": "render.wording",
    "reviews.beer": "reviews.sources.beer_blocks",
    "reviews.cleaning": "reviews.corpora.cleaning",
    "reviews.columns": "reviews.corpora.record_reading",
    "reviews.corpus": "reviews.corpora.corpus",
    "reviews.crew": "reviews.corpora.worker_pool",
    "reviews.cutting": "reviews.corpora.word_columns",
    "reviews.files": "reviews.sources.line_reading",
    "reviews.formats": "reviews.sources.formats",
    "reviews.gather": "reviews.sources.gathering",
    "reviews.jsonlines": "reviews.sources.json_lines",
    "reviews.ledger": "reviews.sources.ledger",
    "reviews.lexicon": "reviews.text.lexicon",
    "reviews.prepare": "reviews.corpora.preparation",
    "reviews.reading": "reviews.sources.request",
    "reviews.recognise": "reviews.sources.recognition",
    "reviews.scale": "reviews.rating_scale",
    "reviews.shop_words": "reviews.shop.sentence_templates",
    "reviews.shop_writer": "reviews.shop.sentence_writer",
    "reviews.statistics": "reviews.corpora.dataset_statistics",
    "reviews.strings": "reviews.corpora.string_column",
    "reviews.tables": "reviews.sources.frames",
    "reviews.tokens": "reviews.text.tokens",
    "reviews.unpack": "reviews.sources.unpacking",
    "serve.about": "serve.service_info",
    "serve.app": "serve.routes",
    "serve.asking": "serve.request_models",
    "serve.batching": "serve.waiting_line",
    "serve.because": "serve.one_line_reasons",
    "serve.counting": "serve.request_counts",
    "serve.desk": "serve.answer_service",
    "serve.files": "serve.page_files",
    "serve.gate": "serve.middleware",
    "serve.memory": "serve.caches",
    "serve.run": "serve.server",
    "serve.search": "serve.id_search",
    "serve.summary": "explain.profiles",
    "serve.swift": "explain.capsule_reasons",
    "serve.turns": "serve.waiting_line",
    "train": "training.loop",
}
# Names that modules had which are packages now, and the modules that hold them.
NAMES: dict[str, dict[str, tuple[str, ...]]] = {
    "carp.explain": {
        "carp.explain.explanation": ("Capsule", "Explanation", "LogicUnit", "Mark", "Sentence", "Side", "TargetReview")
    },
    "carp.cli": {"carp.cli.entry": ("app", "main")},
    "carp.kernels": {"carp.kernels.dispatch": ("give_way", "trainer_for")},
    "carp.reviews.text": {
        "carp.reviews.text.tokens": ("tokenise",),
        "carp.reviews.text.stop_words": ("read_stop_words",),
        "carp.reviews.text.vocabulary": ("Vocabulary",),
        "carp.reviews.corpora.vocabulary_choice": ("build_vocabulary", "count_words"),
    },
    "carp.ranking": {
        "carp.ranking.best_first": ("best_things", "check_number", "rank_by_sides", "rank_one_by_one"),
    },
}


class MovedModules:
    """Asked by the import system when nothing else knows a module."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        new = MODULES.get(name.removeprefix("carp.")) if name.startswith("carp.") else None
        if new is not None:
            raise ModuleNotFoundError(f"{name} is carp.{new} since version {SINCE}; import it from there", name=name)
        return None


def tell_where_modules_went() -> None:
    """Let the import of an old module end in a word on where it went."""
    if MovedModules not in sys.meta_path:
        sys.meta_path.append(MovedModules)


def moved_names(package: str) -> Callable[[str], object]:
    """A package's `__getattr__`: names it had as a module end in a word on where they went."""

    def __getattr__(name: str) -> object:
        for module, names in NAMES[package].items():
            if name in names:
                raise ImportError(f"{name} is in {module} since version {SINCE}; import it from there", name=package)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return __getattr__
