"""The inventory of code blocks: which test runs, compares or checks each of them. A block without a claim fails a test.

To claim blocks, add a line with the page, the language, and the test as `file::name`. If the claim covers only some
blocks of that language on the page, add a part of their text. If a block cannot run in the tests, `not_run` states the
reason, and the named test checks as much of it as possible.
"""

from dataclasses import dataclass
from fnmatch import fnmatch

from documentation.blocks import Block, every_block

RUN = "documentation/test_runs.py::test_the_blocks_of_a_page_run"
CONFIGURED = "documentation/test_configurations.py::test_a_configuration_has_no_faults"
READ = "documentation/test_examples.py::test_json_blocks_are_valid"
INSTALLED = "documentation/test_examples.py::test_installed_extras_exist"
NAMED = "documentation/test_examples.py::test_named_modules_exist"
CONTAINED = "documentation/test_examples.py::test_container_commands_use_existing_options"
SUBMITTED = "documentation/test_examples.py::test_spark_submit_has_the_options"
VALIDATED = "spark_client/deployment/test_page.py::test_the_pod_template_is_valid_and_mounts_token_and_authority"
BASED = "documentation/test_examples.py::test_an_image_installs_the_projects_requirements"


@dataclass(frozen=True)
class Claim:
    """Blocks, and the test that covers them."""

    page: str
    language: str
    test: str
    containing: str = ""
    not_run: str = ""
    """The reason why the test does not run the blocks, or empty if it runs them."""

    def covers(self, block: Block) -> bool:
        """Whether this claim is about a block."""
        return fnmatch(block.page, self.page) and block.language == self.language and self.containing in block.text


CLAIMS = [
    *(Claim("docs/feast.md", language, "spark_client/feast/test_feast.py::test_the_program_of_the_page_prints_its_output")
      for language in ("console", "python", "text")),
    Claim("docs/feast.md", "sh", INSTALLED, "pip install", not_run="the package is here, and no registry is"),
    Claim("docs/feast.md", "sh", "spark_client/feast/test_feast.py::test_the_program_of_the_page_prints_its_output", "tableside serve"),
    # The README.
    Claim("README.md", "sh", "documentation/test_readme.py::demonstration", "scripts/demo"),
    Claim("README.md", "sh", "distribution/test_scripts.py::test_the_first_command_of_each_section_exists", "scripts/test",
          not_run="it runs every test, this one too"),
    Claim("README.md", "console", "documentation/test_readme.py::test_every_command_prints_the_output_of_the_readme"),
    Claim("README.md", "python", "documentation/test_readme.py::test_the_spark_example_runs", "tableside_spark"),
    Claim("README.md", "python", "documentation/test_readme.py::test_the_python_example_runs", "tableside_client"),
    Claim(".github/CONTRIBUTING.md", "sh", "distribution/test_scripts.py::test_the_commands_for_contributors_succeed"),
    # Pages that a test follows from the first block to the last.
    *(
        Claim(f"docs/{page}.md", language, RUN, "tableside serve" if language == "sh" else "")
        for page, languages in {
            "quick-start": ("sh", "console", "python", "text"),
            "command-line": ("sh", "console"),
            "python": ("sh", "python", "text"),
            "ordered-writes": ("sh", "console"),
            "replacing-a-table": ("sh", "console", "python"),
            "migrating": ("sh", "console", "python", "text"),
        }.items()
        for language in languages
    ),
    Claim("docs/operations.md", "sh",
          "service/cli/test_backup.py::test_every_write_acknowledged_before_a_backup_survives_the_loss_of_the_data", "tableside backup"),
    Claim("docs/command-line.md", "sh", "spark_client/cli/test_records.py::test_completion_is_installed_for_the_current_shell", "completion"),
    Claim("docs/python.md", "sh", INSTALLED, "pip install", not_run="the package is here, and no registry is"),
    Claim("docs/quick-start.md", "sh", INSTALLED, "pip install", not_run="the package is here, and no registry is"),
    # Pages whose programs have separate tests.
    *(
        Claim("docs/spark.md", language, f"spark_client/test_spark_documentation.py::{test}", containing)
        for language, test, containing in (
            ("python", "test_a_token_makes_the_update_repeatable", "planes.update"),
            ("python", "test_a_lookup_adds_columns_and_names_invalid_values", "planes.enrich"),
            ("python", "test_a_replaced_table_has_the_records_of_the_frame", "planes.replace"),
            ("text", "test_a_lookup_adds_columns_and_names_invalid_values", "on_mismatch"),
        )
    ),
    *(
        Claim("docs/spark.md", "python", f"spark_client/test_spark_documentation.py::{test}", containing)
        for test, containing in (
            ("test_ordered_writes_leave_the_newest_rows", "sequence_by"),
            ("test_the_format_reads_a_partition", "sensor-7"),
            ("test_a_table_is_copied_and_has_a_view", "readings_copy"),
            ("test_records_are_read_by_their_keys", "400001"),
        )
    ),
    Claim("docs/spark.md", "sql", "spark_client/test_spark_documentation.py::test_a_table_is_copied_and_has_a_view"),
    Claim("docs/spark.md", "text", "spark_client/versions/test_versions.py::test_the_page_shows_the_message", "needs PySpark"),
    Claim("docs/spark.md", "python", "spark_client/test_spark_documentation.py::test_rows_set_the_expiry_of_their_records",
          "sessions.put"),
    Claim("docs/migrating.md", "python", "spark_client/test_row_expiry.py::test_the_program_for_users_of_other_connectors",
          "spark.sql.redis"),
    Claim("docs/change-data-capture.md", "python",
          "spark_client/test_change_data_capture.py::test_a_stream_of_debezium_equals_a_naive_replay", "readStream"),
    Claim("docs/change-data-capture.md", "python",
          "spark_client/test_change_data_capture.py::test_a_frame_of_auto_cdc_equals_a_naive_replay", "users.put"),
    Claim("docs/streaming.md", "python", "spark_client/test_streams_documentation.py::test_failed_rows_are_dead_letters",
          "aircraft_letters"),
    Claim("docs/streaming.md", "python", "spark_client/test_streams_documentation.py::test_an_update_of_a_stream",
          "events,  # a streaming frame"),
    Claim("docs/streaming.md", "python",
          "spark_client/test_streams_documentation.py::test_several_tables_inside_foreach_batch", "def write("),
    Claim("docs/streaming.md", "python", "spark_client/test_streams_documentation.py::test_a_stream_of_changes",
          "delete_when"),
    Claim("docs/state-store.md", "python",
          "spark_client/state/test_page.py::test_the_programs_and_commands_have_the_documented_effects"),
    Claim("docs/state-store.md", "sh",
          "spark_client/state/test_page.py::test_the_programs_and_commands_have_the_documented_effects"),
    Claim("docs/state-store.md", "yaml",
          "spark_client/state/test_page.py::test_the_programs_and_commands_have_the_documented_effects"),
    Claim("docs/multicast.md", "python",
          "spark_client/test_kafka_multicast.py::test_the_program_sends_each_alert_to_the_documented_partitions",
          "class ByRegion"),
    Claim("docs/multicast.md", "python",
          "spark_client/test_kafka_multicast.py::test_the_program_sends_each_alert_to_the_documented_partitions",
          'writeStream.format("kafka")'),
    Claim("docs/partitioned-tables.md", "python", "spark_client/test_partitioned.py::test_the_program_of_the_page",
          "alerts_by_region"),
    Claim("docs/writing-a-store.md", "toml", "distribution/test_plug_ins.py::test_the_documentation_shows_the_example_unchanged"),
    Claim("docs/writing-a-store.md", "python", "distribution/test_plug_ins.py::test_the_documentation_shows_the_example_unchanged",
          "class FilesBackend"),
    Claim("docs/writing-a-store.md", "python", "distribution/test_plug_ins.py::test_it_passes_the_shared_suite",
          "class TestFiles"),
    Claim("docs/writing-a-store.md", "yaml", "distribution/test_plug_ins.py::test_the_service_serves_it", "kind: files"),
    # The contents of stores.
    Claim("docs/stores/redis.md", "console", "documentation/test_programs.py::test_the_contents_of_redis", "redis-cli"),
    Claim("docs/stores/postgres.md", "sql", "documentation/test_programs.py::test_a_manually_created_table_of_documents",
          "CREATE TABLE profiles"),
    Claim("docs/stores/postgres.md", "sql", "documentation/test_programs.py::test_a_manually_created_table_of_columns",
          "CREATE TABLE aircraft"),
    Claim("docs/replacing-a-table.md", "sql", "documentation/test_programs.py::test_a_view_of_the_current_generation"),
    Claim("docs/stores/postgres.md", "yaml", "documentation/test_programs.py::test_a_manually_created_table_of_columns",
          "layout: columns"),
    # Configurations and parts of configurations.
    Claim("docs/configuration.md", "yaml", CONFIGURED),
    Claim("docs/operations.md", "yaml", CONFIGURED),
    Claim("docs/stores*.md", "yaml", CONFIGURED, "stores:"),
    Claim("docs/policies.md", "yaml", CONFIGURED),
    Claim("docs/replacing-a-table.md", "yaml", CONFIGURED),
    Claim("docs/partitioned-tables.md", "yaml", CONFIGURED),
    Claim("docs/security.md", "yaml", CONFIGURED, "stores:"),
    Claim("docs/security.md", "yaml",
          "service/auth/test_issuers_service.py::test_the_manifests_of_the_documentation_are_valid", "apiVersion:",
          not_run="there is no cluster"),
    # Values of the chart, and commands for a cluster.
    Claim("docs/kubernetes.md", "yaml",
          "deploy/chart/test_documentation.py::test_values_of_a_page_render_and_the_service_accepts_their_configuration",
          "config:"),
    Claim("docs/kubernetes.md", "yaml",
          "deploy/chart/test_documentation.py::test_other_yaml_blocks_of_a_page_belong_to_other_tools",
          not_run="they configure proxies and adapters, which are not here"),
    Claim("docs/kubernetes.md", "sh",
          "deploy/chart/test_documentation.py::test_commands_of_a_page_use_the_chart_and_existing_values",
          not_run="there is no cluster"),
    # Building, checking and installing a release.
    Claim("docs/releasing.md", "sh",
          "distribution/test_release.py::test_it_builds_an_sdist_a_wheel_bills_of_materials_and_digests", "sha256sum"),
    Claim("docs/releasing.md", "sh", "distribution/test_release.py::test_a_second_release_of_the_commit_has_the_same_bytes",
          "git clone"),
    Claim("docs/releasing.md", "sh", "distribution/test_distribution.py::test_an_extra_installs_the_dependencies_of_its_store",
          "requirements.txt"),
    *(
        Claim("docs/kubernetes.md", "sh", CONTAINED, containing,
              not_run="there is no container engine; tests/deploy/image builds and runs the image")
        for containing in ("docker build", "docker run")
    ),
    # Spark on a cluster.
    Claim("docs/spark-deployment.md", "dockerfile", BASED, not_run="it is on top of an image of yours"),
    Claim("docs/spark-deployment.md", "sh",
          "spark_client/deployment/test_ways.py::test_a_zip_file_with_dependencies_is_sufficient_and_a_wheel_is_not",
          "--py-files"),
    Claim("docs/spark-deployment.md", "sh",
          "spark_client/deployment/test_ways.py::test_a_packed_environment_has_everything", "--archives"),
    Claim("docs/spark-deployment.md", "python",
          "spark_client/deployment/test_ways.py::test_a_spark_connect_session_adds_the_client", "addArtifacts"),
    Claim("docs/spark-deployment.md", "sh", SUBMITTED, "TABLESIDE_CA_FILE", not_run="the path is of your hosts"),
    Claim("docs/spark-deployment.md", "sh", SUBMITTED, "k8s://", not_run="there is no cluster of Kubernetes"),
    Claim("docs/spark-deployment.md", "yaml", VALIDATED, "kind: Pod", not_run="there is no cluster of Kubernetes"),
    # A request.
    Claim("docs/http.md", "http", "service/http/test_tokens.py::test_the_request_of_the_documentation_is_applied_once"),
    # Blocks that are not programs.
    Claim("docs/partitioned-tables.md", "json", READ),
    Claim("docs/observability.md", "json", "service/telemetry/test_audit.py::test_events_have_lines_of_one_shape_without_data"),
    Claim("docs/design.md", "text", NAMED, "core < telemetry"),
    Claim("docs/design.md", "text", NAMED, "tableside_client < versions"),
]  # fmt: skip


def claims_of(block: Block) -> list[Claim]:
    """Return the claims that cover a block."""
    return [claim for claim in CLAIMS if claim.covers(block)]


def claimed(test: str) -> list[Block]:
    """Return the blocks that a test covers."""
    return [block for block in every_block() if test in [claim.test for claim in claims_of(block)]]
