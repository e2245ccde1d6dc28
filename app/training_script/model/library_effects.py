"""Effects of functions and methods of libraries on files and services that ranks share, by their qualified names.

The path is given by its place among the arguments and by its name; the place -1 is the object of the method. A name
with a dot before it is that of a method. Sources: the API references of the libraries.
"""

# What replaces a file.
REPLACES: dict[str, tuple[int, str]] = {
    "open": (0, "file"),
    **dict.fromkeys(("numpy.save", "numpy.savez", "numpy.savez_compressed"), (0, "file")),
    "numpy.savetxt": (0, "fname"),
    "shutil.copytree": (1, "dst"),
    **dict.fromkeys((".write_text", ".write_bytes"), (-1, "")),
    **dict.fromkeys((".to_csv", ".to_json", ".to_parquet", ".to_pickle"), (0, "path_or_buf")),
    ".save_to_disk": (0, "dataset_path"),
    **dict.fromkeys((".savefig", "matplotlib.pyplot.savefig", "matplotlib.pyplot.imsave"), (0, "fname")),
    "cv2.imwrite": (0, "filename"),
    "imageio.imwrite": (0, "uri"),
    "torchvision.utils.save_image": (1, "fp"),
    "torchaudio.save": (0, "uri"),
    "soundfile.write": (0, "file"),
    "joblib.dump": (1, "filename"),
    "dllogger.JSONStreamBackend": (1, "filename"),
    "logging.basicConfig": (99, "filename"),
    "logging.FileHandler": (0, "filename"),
    **dict.fromkeys(
        ("monai.handlers.write_metrics_reports", "monai.handlers.utils.write_metrics_reports"), (0, "save_dir")
    ),
    **dict.fromkeys(("omegaconf.OmegaConf.save", "omegaconf.omegaconf.OmegaConf.save"), (1, "f")),
}
# What reads a file or a directory that something writes as a whole.
READS: dict[str, tuple[int, str]] = {
    "torch.load": (0, "f"),
    "numpy.load": (0, "file"),
    "numpy.loadtxt": (0, "fname"),
    "safetensors.torch.load_file": (0, "filename"),
    "joblib.load": (0, "filename"),
    "datasets.load_from_disk": (0, "dataset_path"),
    "pandas.read_csv": (0, "filepath_or_buffer"),
    **dict.fromkeys(("pandas.read_parquet", "pandas.read_feather"), (0, "path")),
    "pandas.read_json": (0, "path_or_buf"),
    "pandas.read_pickle": (0, "filepath_or_buffer"),
    **dict.fromkeys((".read_text", ".read_bytes"), (-1, "")),
}
# What opens a file for parts that are written one by one, with the place of the mode, which is called so.
OPENED: dict[str, tuple[int, str, int]] = {
    "numpy.memmap": (0, "filename", 2),
    "numpy.lib.format.open_memmap": (0, "filename", 1),
    "h5py.File": (0, "name", 1),
    **dict.fromkeys(("zarr.open", "zarr.open_group", "zarr.open_array"), (0, "store", 1)),
    "netCDF4.Dataset": (0, "filename", 1),
    "zipfile.ZipFile": (0, "file", 1),
    "tarfile.open": (0, "name", 1),
}
# Of these: what is logged is not among the arguments; and the mode in which they open it, which else is to append.
LOG_FILES = ("dllogger.JSONStreamBackend", "logging.basicConfig", "logging.FileHandler")
LOG_MODES = {"logging.basicConfig": (99, "filemode"), "logging.FileHandler": (1, "mode")}
# What fails, or doubles, where another rank has done it before: links, and what moves away or deletes a path.
LINKS = {"os.symlink": (1, "dst"), "os.link": (1, "dst"), ".symlink_to": (-1, "")}
MOVES = ("shutil.move", "os.rename", "os.replace")
DELETES = ("shutil.rmtree", "os.remove", "os.unlink", "os.rmdir", ".unlink", ".rmdir")
# Functions that download or unpack to a path.
DOWNLOADS = {
    "urllib.request.urlretrieve": (1, "filename"),
    "wget.download": (1, "out"),
    "gdown.download": (1, "output"),
    "shutil.unpack_archive": (1, "extract_dir"),
    ".extractall": (0, "path"),
    "torchvision.datasets.utils.download_url": (1, "root"),
    "torchvision.datasets.utils.download_and_extract_archive": (1, "download_root"),
}
# Data sets that download and convert their files when they are made for the first time.
DATASETS = ("torch_geometric.datasets.", "ogb.nodeproppred.", "ogb.graphproppred.", "ogb.linkproppred.")
WRITERS = ("torch.utils.tensorboard.SummaryWriter", "tensorboardX.SummaryWriter")
# Calls that start a run, by the name of the service.
EXPERIMENTS = {
    "wandb.init": "Weights & Biases",
    "mlflow.start_run": "MLflow",
    "swanlab.init": "SwanLab",
    "comet_ml.Experiment": "Comet",
    "neptune.init_run": "Neptune",
    "neptune.init": "Neptune",
    "aim.Run": "Aim",
}
UPLOADS = ("huggingface_hub.upload_folder", "huggingface_hub.upload_file", ".upload_folder", ".push_to_hub")
NAMES = (*REPLACES, *OPENED, *LINKS, *MOVES, *DELETES, *DOWNLOADS, *WRITERS, *EXPERIMENTS, *UPLOADS)
FUNCTIONS = frozenset(name for name in (*NAMES, *READS) if not name.startswith("."))
METHODS = frozenset(name[1:] for name in NAMES if name.startswith("."))
# Texts of calls in helpers that are followed for the sake of these effects.
MENTIONED = (
    *("torch.save", "wandb.", "makedirs", "mkdir(", "rmtree", "os.remove(", ".write_text(", ".to_csv(", ".to_json("),
    *("memmap(", "h5py.File(", "zarr.open"),
    *(".to_parquet(", ".save_to_disk(", "SummaryWriter(", "symlink", "os.rename(", "shutil.move(", ".push_to_hub("),
    *("JSONStreamBackend(", "torch_geometric.datasets", "PropPredDataset("),
    *("urlretrieve(", "gdown.", '"w")', "'w')", '"wb")', "'wb')"),
)
