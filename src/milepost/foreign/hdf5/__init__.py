"""HDF5 files, which are checked before h5py parses them."""
