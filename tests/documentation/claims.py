"""The inventory of code blocks: which test runs, compares or checks each of them. A block without a claim fails a test.

A claim is a page, a language and, if it covers only some blocks of that language on the page, a part of their text. If
a block cannot run here, because it needs a cluster, a container engine or a registry, the test checks as much of it as
possible.
"""

from fnmatch import fnmatch

from documentation.blocks import Block, every_block

RUN = "documentation/test_runs.py::test_the_blocks_of_a_page_run"
CONFIGURED = "documentation/test_examples.py::test_a_configuration_has_no_faults"
READ = "documentation/test_examples.py::test_json_blocks_are_valid"
INSTALLED = "documentation/test_inline.py::test_named_extras_exist"
NAMED = "documentation/test_examples.py::test_named_modules_exist"
CONTAINED = "documentation/test_examples.py::test_container_commands_use_existing_options"
SUBMITTED = "documentation/test_examples.py::test_spark_submit_has_the_options"
BASED = "documentation/test_examples.py::test_an_image_installs_the_projects_requirements"

FOLLOWED = {
    "quick-start": ("sh tableside serve", "console", "python", "text"),
    "command-line": ("sh tableside serve", "console"),
    "python": ("sh tableside serve", "python", "text"),
    "ordered-writes": ("sh tableside serve", "console"),
    "replacing-a-table": ("sh tableside serve", "console", "python"),
    "migrating": ("sh tableside serve", "console", "python", "text"),
}
"""Pages whose blocks run from the first to the last."""

CLAIMS: dict[str, list[str]] = {
    RUN: [f"docs/{page}.md {blocks}" for page, languages in FOLLOWED.items() for blocks in languages],
    CONFIGURED: [
        "docs/configuration.md yaml", "docs/operations.md yaml", "docs/stores*.md yaml stores:", "docs/policies.md yaml",
        "docs/replacing-a-table.md yaml", "docs/partitioned-tables.md yaml", "docs/security.md yaml stores:",
    ],
    BASED: ["docs/spark-deployment.md dockerfile"],
    CONTAINED: ["docs/kubernetes.md sh docker build", "docs/kubernetes.md sh docker run"],
    INSTALLED: [
        "docs/feast.md sh pip install", "docs/python.md sh pip install", "docs/quick-start.md sh pip install",
    ],
    READ: ["docs/partitioned-tables.md json"],
    NAMED: ["docs/design.md text core < telemetry", "docs/design.md text tableside_client < versions"],
    SUBMITTED: ["docs/spark-deployment.md sh TABLESIDE_CA_FILE", "docs/spark-deployment.md sh k8s://"],
    "deploy/chart/test_documentation.py::test_commands_of_a_page_use_the_chart_and_existing_values": ["docs/kubernetes.md sh"],
    "deploy/chart/test_documentation.py::test_other_yaml_blocks_of_a_page_belong_to_other_tools": ["docs/kubernetes.md yaml"],
    "deploy/chart/test_documentation.py::test_values_of_a_page_render_and_the_service_accepts_their_configuration": [
        "docs/kubernetes.md yaml config:",
        "docs/kubernetes.md yaml enabled: true",
    ],
    "distribution/test_distribution.py::test_an_extra_installs_the_dependencies_of_its_store": ["docs/releasing.md sh requirements.txt"],
    "distribution/test_plug_ins.py::test_it_passes_the_shared_suite": ["docs/writing-a-store.md python class TestFiles"],
    "distribution/test_plug_ins.py::test_the_documentation_shows_the_example_unchanged": [
        "docs/writing-a-store.md toml",
        "docs/writing-a-store.md python class FilesBackend",
    ],
    "distribution/test_plug_ins.py::test_the_service_serves_it": ["docs/writing-a-store.md yaml kind: files"],
    "distribution/test_release.py::test_a_second_release_of_the_commit_has_the_same_bytes": ["docs/releasing.md sh git clone"],
    "distribution/test_release.py::test_it_builds_an_sdist_a_wheel_bills_of_materials_and_digests": ["docs/releasing.md sh sha256sum"],
    "distribution/test_scripts.py::test_the_commands_for_contributors_succeed": [".github/CONTRIBUTING.md sh"],
    "distribution/test_scripts.py::test_the_first_command_of_each_section_exists": ["README.md sh scripts/test"],
    "documentation/test_programs.py::test_a_manually_created_table_of_columns": [
        "docs/stores/postgres.md sql CREATE TABLE aircraft",
        "docs/stores/postgres.md yaml layout: columns",
    ],
    "documentation/test_programs.py::test_a_manually_created_table_of_documents": ["docs/stores/postgres.md sql CREATE TABLE profiles"],
    "documentation/test_programs.py::test_a_view_of_the_current_generation": ["docs/replacing-a-table.md sql"],
    "documentation/test_programs.py::test_the_contents_of_redis": ["docs/stores/redis.md console redis-cli"],
    "documentation/test_readme.py::demonstration": ["README.md sh scripts/demo"],
    "documentation/test_readme.py::test_every_command_prints_the_output_of_the_readme": ["README.md console"],
    "documentation/test_readme.py::test_the_python_example_runs": ["README.md python tableside_client"],
    "documentation/test_readme.py::test_the_spark_example_runs": ["README.md python tableside_spark"],
    "service/auth/test_issuers_service.py::test_the_manifests_of_the_documentation_are_valid": ["docs/security.md yaml apiVersion:"],
    "service/cli/test_backup.py::test_every_write_acknowledged_before_a_backup_survives_the_loss_of_the_data": [
        "docs/operations.md sh tableside backup",
    ],
    "service/http/test_tokens.py::test_the_request_of_the_documentation_is_applied_once": ["docs/http.md http"],
    "service/telemetry/test_audit.py::test_events_have_lines_of_one_shape_without_data": ["docs/observability.md json"],
    "spark_client/cli/test_records.py::test_completion_is_installed_for_the_current_shell": ["docs/command-line.md sh completion"],
    "spark_client/deployment/test_page.py::test_the_pod_template_is_valid_and_mounts_token_and_authority": [
        "docs/spark-deployment.md yaml kind: Pod",
    ],
    "spark_client/deployment/test_ways.py::test_a_packed_environment_has_everything": ["docs/spark-deployment.md sh --archives"],
    "spark_client/deployment/test_ways.py::test_a_spark_connect_session_adds_the_client": ["docs/spark-deployment.md python addArtifacts"],
    "spark_client/deployment/test_ways.py::test_a_zip_file_with_dependencies_is_sufficient_and_a_wheel_is_not": [
        "docs/spark-deployment.md sh --py-files",
    ],
    "spark_client/feast/test_feast.py::test_the_program_of_the_page_prints_its_output": [
        "docs/feast.md console", "docs/feast.md python", "docs/feast.md text", "docs/feast.md sh tableside serve",
    ],
    "spark_client/state/test_page.py::test_the_programs_and_commands_have_the_documented_effects": [
        "docs/state-store.md python",
        "docs/state-store.md sh",
        "docs/state-store.md yaml",
    ],
    "spark_client/test_change_data_capture.py::test_a_frame_of_auto_cdc_equals_a_naive_replay": ["docs/change-data-capture.md python users.put"],
    "spark_client/test_change_data_capture.py::test_a_stream_of_debezium_equals_a_naive_replay": ["docs/change-data-capture.md python readStream"],
    "spark_client/test_multicast.py::test_the_program_sends_each_alert_to_the_documented_partitions": [
        "docs/multicast.md python class ByRegion",
        'docs/multicast.md python writeStream.format("kafka")',
    ],
    "spark_client/test_partitioned.py::test_the_program_of_the_page": ["docs/partitioned-tables.md python alerts_by_region"],
    "spark_client/test_row_expiry.py::test_the_program_for_users_of_other_connectors": ["docs/migrating.md python spark.sql.redis"],
    "spark_client/test_spark_documentation.py::test_a_lookup_adds_columns_and_names_invalid_values": [
        "docs/spark.md python planes.enrich",
        "docs/spark.md text on_mismatch",
    ],
    "spark_client/test_spark_documentation.py::test_a_replaced_table_has_the_records_of_the_frame": ["docs/spark.md python planes.replace"],
    "spark_client/test_spark_documentation.py::test_a_table_is_copied_and_has_a_view": ["docs/spark.md python readings_copy", "docs/spark.md sql"],
    "spark_client/test_spark_documentation.py::test_a_token_makes_the_update_repeatable": ["docs/spark.md python planes.update"],
    "spark_client/test_spark_documentation.py::test_ordered_writes_leave_the_newest_rows": ["docs/spark.md python sequence_by"],
    "spark_client/test_spark_documentation.py::test_records_are_read_by_their_keys": ["docs/spark.md python 400001"],
    "spark_client/test_spark_documentation.py::test_rows_set_the_expiry_of_their_records": ["docs/spark.md python sessions.put"],
    "spark_client/test_spark_documentation.py::test_the_format_reads_a_partition": ["docs/spark.md python sensor-7"],
    "spark_client/test_spark_documentation.py::test_a_stream_of_changes": ["docs/streaming.md python delete_when"],
    "spark_client/test_spark_documentation.py::test_an_update_of_a_stream": ["docs/streaming.md python events,  # a streaming frame"],
    "spark_client/test_spark_documentation.py::test_failed_rows_are_dead_letters": ["docs/streaming.md python aircraft_letters"],
    "spark_client/test_spark_documentation.py::test_several_tables_inside_foreach_batch": ["docs/streaming.md python def write("],
    "spark_client/versions/test_versions.py::test_the_page_shows_the_message": ["docs/spark.md text needs PySpark"],
}  # fmt: skip


def covers(claim: str, block: Block) -> bool:
    """Return whether a claim is about a block."""
    page, language, *containing = claim.split(" ", 2)
    return fnmatch(block.page, page) and block.language == language and "".join(containing) in block.text


def claims_of(block: Block) -> list[str]:
    """Return the tests that cover a block."""
    return [test for test, claims in CLAIMS.items() if any(covers(claim, block) for claim in claims)]


def claimed(test: str) -> list[Block]:
    """Return the blocks that a test covers."""
    return [block for block in every_block() if test in claims_of(block)]
